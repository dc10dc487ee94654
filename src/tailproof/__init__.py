"""tailproof: learning when losses and gradients may be heavy-tailed."""

import importlib
from types import ModuleType

from tailproof import diagnose, losses, means, merge, model_selection, partition, plots, sets, steps, theory
from tailproof.anywhere import fit, predict, score
from tailproof.baselines import RGDClassifier, RGDRegressor
from tailproof.linear import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor
from tailproof.meta import DivideAndConquer, RobustValidation
from tailproof.persist import load, save
from tailproof.robust import RobustRegressor

__version__ = "0.1.0"

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
