"""tailproof: learning when losses and gradients may be heavy-tailed."""

from tailproof.interrupts import ending_at_once

with ending_at_once():
    import importlib
    import sys
    from typing import TYPE_CHECKING, Any

    from tailproof.core import losses, means, merge, partition, sets, steps, theory
    from tailproof.core.populations import TwoPopulationsWarning
    from tailproof.estimators.baselines.estimators import RGDClassifier, RGDRegressor
    from tailproof.estimators.linear.drift import DriftWarning
    from tailproof.estimators.linear.estimators import (
        DCSGDClassifier,
        DCSGDRegressor,
        RVSGDClassifier,
        RVSGDRegressor,
    )
    from tailproof.estimators.meta.estimators import DivideAndConquer, RobustValidation
    from tailproof.estimators.robust_classifier.estimator import RobustClassifier
    from tailproof.estimators.robust_regressor.estimator import RobustRegressor

if TYPE_CHECKING:
    from tailproof import diagnose, model_selection, plots
    from tailproof.data.verbs import fit, predict, score
    from tailproof.model_files.files import load, save
    from tailproof.model_selection.two_samples import compare_means
    from tailproof.tables.estimators import TableClassifier, TableRegressor

__version__ = "0.1.0"

# ``from tailproof.means import catoni`` as well as ``from tailproof import means``.
for _module in (losses, means, merge, partition, sets, steps, theory):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module

__all__ = [
    "DCSGDClassifier",
    "DCSGDRegressor",
    "DivideAndConquer",
    "DriftWarning",
    "RGDClassifier",
    "RGDRegressor",
    "RVSGDClassifier",
    "RVSGDRegressor",
    "RobustClassifier",
    "RobustRegressor",
    "RobustValidation",
    "TableClassifier",
    "TableRegressor",
    "TwoPopulationsWarning",
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


# Loaded on first use, since not every program needs them: module, and name in it (none: the module itself).
_LATE = {
    "compare_means": ("model_selection.two_samples", "compare_means"),
    "diagnose": ("diagnose", ""),
    "fit": ("data.verbs", "fit"),
    "load": ("model_files.files", "load"),
    "model_selection": ("model_selection", ""),
    "plots": ("plots", ""),
    "predict": ("data.verbs", "predict"),
    "save": ("model_files.files", "save"),
    "score": ("data.verbs", "score"),
    "dask": ("dask", ""),
    "spark": ("spark", ""),
    "TableClassifier": ("tables.estimators", "TableClassifier"),
    "TableRegressor": ("tables.estimators", "TableRegressor"),
    "torch": ("torch", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, member = _LATE[name]
    module = importlib.import_module(f"{__name__}.{place}")
    globals()[name] = getattr(module, member) if member else module
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
