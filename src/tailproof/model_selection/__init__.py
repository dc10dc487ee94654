"""Which model is better, when losses are heavy-tailed: robust scorers, cross-validation, comparisons.

All of it estimates the *expected* loss, the same target as the plain mean, as long as the variance of the
loss is finite. Where far-out rows are contamination, to be ignored, expected loss is not what you want.
"""

from tailproof.model_selection.compare import (
    Comparison,
    RobustScorer,
    compare,
    make_robust_scorer,
    robust_cross_validate,
    robust_refit,
)
from tailproof.model_selection.cross_validation import CrossValidation
from tailproof.model_selection.two_samples import MeansComparison, compare_means

__all__ = [
    "Comparison",
    "CrossValidation",
    "MeansComparison",
    "RobustScorer",
    "compare",
    "compare_means",
    "make_robust_scorer",
    "robust_cross_validate",
    "robust_refit",
]
