"""tailproof: learning when losses and gradients may be heavy-tailed."""

from tailproof import losses, means, merge, partition, sets, steps, theory
from tailproof.anywhere import fit, predict, score
from tailproof.baselines import RGDClassifier, RGDRegressor
from tailproof.linear import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor

__version__ = "0.1.0"

__all__ = [
    "DCSGDClassifier",
    "DCSGDRegressor",
    "RGDClassifier",
    "RGDRegressor",
    "RVSGDClassifier",
    "RVSGDRegressor",
    "__version__",
    "fit",
    "losses",
    "means",
    "merge",
    "partition",
    "predict",
    "score",
    "sets",
    "steps",
    "theory",
]
