"""tailproof: learning when losses and gradients may be heavy-tailed."""

import importlib
import sys
from types import ModuleType

from tailproof import diagnose, model_selection, plots
from tailproof.core import losses, means, merge, partition, sets, steps, theory
from tailproof.data.verbs import fit, predict, score
from tailproof.estimators.baselines.estimators import RGDClassifier, RGDRegressor
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.meta.estimators import DivideAndConquer, RobustValidation
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.model_files.files import load, save
from tailproof.model_selection.two_samples import compare_means

__version__ = "0.1.0"

# ``from tailproof.means import catoni`` as well as ``from tailproof import means``.
for _module in (losses, means, merge, partition, sets, steps, theory):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module

__all__ = [
    "DCSGDClassifier",
    "DCSGDRegressor",
    "DivideAndConquer",
    "RGDClassifier",
    "RGDRegressor",
    "RVSGDClassifier",
    "RVSGDRegressor",
    "RobustRegressor",
    "RobustValidation",
    "__version__",
    "compare_means",
    "diagnose",
    "fit",
    "load",
    "losses",
    "means",
    "merge",
    "model_selection",
    "partition",
    "plots",
    "predict",
    "save",
    "score",
    "sets",
    "steps",
    "theory",
]


def __getattr__(name: str) -> ModuleType:
    # Loaded on first use, since it takes PyTorch along.
    if name == "torch":
        return importlib.import_module("tailproof.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
