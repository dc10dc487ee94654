"""tailproof: learning when losses and gradients may be heavy-tailed."""

from tailproof import diagnose, losses, means, merge, model_selection, partition, plots, sets, steps, theory
from tailproof.baselines import RGDClassifier, RGDRegressor
from tailproof.linear import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor
from tailproof.meta import DivideAndConquer, RobustValidation

__version__ = "0.1.0"

__all__ = [
    "DCSGDClassifier",
    "DCSGDRegressor",
    "DivideAndConquer",
    "RGDClassifier",
    "RGDRegressor",
    "RVSGDClassifier",
    "RVSGDRegressor",
    "RobustValidation",
    "__version__",
    "diagnose",
    "losses",
    "means",
    "merge",
    "model_selection",
    "partition",
    "plots",
    "sets",
    "steps",
    "theory",
]
