"""RobustClassifier: logistic regression that mislabelled far rows do not spoil."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.means import robust_mean
from tailproof.core.scaling import FeatureScale, robust_columns, sample_rows
from tailproof.core.validate import paired_differences
from tailproof.estimators.choice_plot import ChoicePlot
from tailproof.estimators.inputs import (
    Classification,
    LinearModel,
    check_finite_model,
    rows_with_weight,
    seed_from_random_state,
)
from tailproof.estimators.robust_classifier.fits import (
    FITS,
    LabelledRows,
    relative_leverage,
    ridge_for_slopes,
)
from tailproof.estimators.robust_regressor.blend import blend_weights
from tailproof.estimators.robust_regressor.tuning import DEFAULT
from tailproof.estimators.screening import Screened, screen
from tailproof.estimators.sklearn_private import Interval, fit_context
from tailproof.reports.choice_report import RobustReport
from tailproof.reports.fit_report import Clock

FOLDS = 5
FAR = 5.0  # median leverages: rows beyond do not judge candidates
FEW = 0.05  # of the rows, at most: else they are no exception
LEAST_ROWS = 50  # below, there is too little to hold out
# Plain logistic regression is hard to beat on clean data: two standard errors leave it no weight.
_TUNING = replace(DEFAULT, convinced=2.0)
# Far rows of heavy-tailed features are no exception; they lose their say only to near rows that are sure.
_SURE = replace(DEFAULT, convinced=4.0)
_SCOPE = (
    "Lemma 'boost_conf_unbounded' covers a choice by held-out rows that no candidate has seen; here folds "
    "take turns, rows of high leverage do not judge, and the choice is followed by a fit on all rows: a "
    "heuristic of the same form."
)
_NO_SCOPE = "No guarantee: with so few rows nothing was held out."
_TOO_FEW = "since rows, or those of the smallest class, are too few to hold any out"


class RobustClassifier(ChoicePlot, Classification, LinearModel):
    """Logistic regression, binary or softmax, that mislabelled rows of high leverage do not spoil.

    Heavy tails of honest features do not hurt logistic regression; wrong labels far out do. Fits from plain
    to bounded influence are compared on held-out rows. Rows beyond 5 median leverages do not judge, if they
    are at most 5%: their labels may be as wrong as those that spoil the fits. If there are more, the farthest
    5% do not judge where the others find plain regression worse by four standard errors. Coefficients are
    blended as by :class:`RobustRegressor`; where the data cannot tell candidates apart, the plain one keeps
    its weight. Fits have a ridge of one over the mean square of their slopes (and of four of size one), in
    columns divided by their scales, and of one row at most, as scikit-learn's.

    Parameters
    ----------
    delta : float
        One minus the confidence of means and intervals.
    fit_intercept : bool
    drop_glitches : bool
        Leave rows out, with a warning, that have a feature beyond a gap that no tail has, as
        :class:`RobustRegressor` does.
    random_state : int, RandomState or None
        Assigns rows to folds.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (1 or n_classes, n_features) and (1 or n_classes,)
    classes_ : array
    report_ : RobustReport
        Every candidate with its robust risk and its paired difference to the model.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2_000, 3))
    >>> y = X.sum(axis=1) + rng.logistic(size=2_000) > 0
    >>> X[:20], y[:20] = 10.0, False
    >>> model = RobustClassifier(random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - 1).max() < 0.3)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "fit_intercept": ["boolean"],
        "drop_glitches": ["boolean"],
        "random_state": ["random_state"],
    }
    loss, loss_parameter = "log_loss", None  # what the scores mean; not a choice here

    def __init__(
        self,
        *,
        delta: float = 0.05,
        fit_intercept: bool = True,
        drop_glitches: bool = True,
        random_state: Any = None,
    ) -> None:
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.drop_glitches = drop_glitches
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> RobustClassifier:
        """Fit all candidates, choose, and blend.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            Scales the loss of each row; a row of weight zero is as if absent.

        Returns
        -------
        self
        """
        clock = Clock()
        with clock("prepare"):
            X, target, weights, outputs, screening = self._given(X, y, sample_weight)
            near = np.delete(np.arange(X.shape[0]), screening.far)
            columns = robust_columns(sample_rows(X, [near]), centred=bool(self.fit_intercept))
            folds = _folds(target, np.random.default_rng(seed_from_random_state(self.random_state)))
            start = np.zeros((X.shape[1] + 1, outputs))
            rows = self._labelled(_scaled(X, columns), target, weights, outputs)
            rows = replace(rows, ridge=ridge_for_slopes(rows, start))
        with clock("candidates"):
            losses = _held_out(rows, folds, start) if folds else np.empty((0, len(FITS)))
        with clock("choice"):
            judges = _judges(rows, losses, self.delta)
            losses = losses[judges] if folds else losses
            shares = weights[judges] if weights.size else None
            mixture = _mixture(losses, shares, self.delta)
            parts = (
                share * fit(rows, start) for share, fit in zip(mixture, FITS.values(), strict=True) if share
            )
            self._set_theta(sum(parts, start=start), columns)
            check_finite_model(self.coef_, self.intercept_, X)
            compared = _compared(losses, mixture, shares, self.delta)
        self.report_ = RobustReport(
            **compared,
            folds=len(folds),
            compared=judges.size,
            glitches=screening.left_out,
            outlying=screening.outlying,
            seconds=clock.seconds,
            estimator="RobustClassifier",
        )
        if self.drop_glitches:
            screening.warn()
        return self

    def _given(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, Array, Array, int, Screened]:
        """Check the caller's rows, and leave out those of another population; with the number of outputs."""
        X, y = self._check_input(X, y, reset=True, ensure_all_finite=True)
        X, y, weights = rows_with_weight(sample_weight, X, y)
        _, target, outputs = self._encode(y)
        screening = screen(X, None, self.drop_glitches, sample_weight, labels=target)
        return *screening.rows_of(X, target, weights), outputs, screening

    def _labelled(self, Z: Any, target: Array, weights: Array, outputs: int) -> LabelledRows:
        labels = (target > 0).astype(float)[:, None] if outputs == 1 else np.eye(outputs)[target.astype(int)]
        shares = weights if weights.size else np.ones(len(target))
        return LabelledRows(Z, labels, shares, relative_leverage(Z), bool(self.fit_intercept))

    def _set_theta(self, theta: Array, columns: FeatureScale) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self.coef_ = (theta[:-1] / columns.scale[:, None]).T
            self.intercept_ = float(self.fit_intercept) * theta[-1] - self.coef_ @ columns.centre


def _scaled(X: Any, columns: FeatureScale) -> Any:
    if sparse.issparse(X):
        return X.multiply(1.0 / columns.scale).tocsr()
    return (X - columns.centre) / columns.scale


def _folds(target: Array, random: np.random.Generator) -> list[NDArray[np.intp]]:
    """Rows to folds at random, each with its share of every class; none if a class is too small."""
    counts = np.unique(target, return_counts=True)[1]
    if target.size < LEAST_ROWS or counts.min() < 2 * FOLDS:
        return []
    order = random.permutation(target.size)
    order = order[np.argsort(target[order], kind="stable")]
    return [np.sort(order[k::FOLDS]) for k in range(FOLDS)]


def _judges(rows: LabelledRows, losses: Array, delta: float) -> NDArray[np.intp]:
    """Rows that candidates are judged by: without those of high leverage, if they are few or spoil fits."""
    near = np.flatnonzero(rows.leverage <= FAR)
    if near.size >= (1.0 - FEW) * rows.leverage.size:
        return near
    most = np.flatnonzero(rows.leverage <= np.quantile(rows.leverage, 1.0 - FEW))
    spoilt = losses.size > 0 and _plain_is_refuted(losses[most], rows.weights[most], delta)
    return most if spoilt else np.arange(rows.leverage.size)


def _plain_is_refuted(losses: Array, weights: Array, delta: float) -> bool:
    """Whether held-out losses leave the plain fit no weight, though it takes four standard errors."""
    return bool(blend_weights(losses, 0, delta, weights, tuning=_SURE)[0] == 0)


def _held_out(rows: LabelledRows, folds: list[NDArray[np.intp]], start: Array) -> Array:
    """Log losses of every row (first axis) by every candidate fitted without its fold."""
    losses = np.empty((rows.Y.shape[0], len(FITS)))
    for fold in folds:
        rest = rows.take(np.delete(np.arange(rows.Y.shape[0]), fold))
        part = rows.take(fold)
        for j, fit in enumerate(FITS.values()):
            losses[fold, j] = part.losses(fit(rest, start))
    return losses


def _mixture(losses: Array, shares: Array | None, delta: float) -> Array:
    """Weights of the fits; of the plain one alone, where nothing was held out."""
    if not losses.size:
        return np.eye(len(FITS))[0]
    return blend_weights(losses, 0, delta, shares, tuning=_TUNING)


def _compared(losses: Array, mixture: Array, shares: Array | None, delta: float) -> dict[str, Any]:
    """What the report says of the fits beside each other."""
    best, used = int(np.argmax(mixture)), np.count_nonzero(mixture)
    name, nothing = tuple(FITS)[best], np.full(len(FITS), np.nan)
    told: dict[str, Any] = {"candidates": tuple(FITS), "chosen": best, "delta": float(delta)}
    if not losses.size:
        told |= dict.fromkeys(("risk", "difference", "low", "high"), nothing)
        return told | {"why": f"Chosen: {name}, {_TOO_FEW}.", "guarantee": _NO_SCOPE}
    gaps = paired_differences(losses, best, delta=delta, weights=shares, untied_share=1.0)
    told |= {"difference": gaps.estimate, "low": gaps.low, "high": gaps.high}
    told["risk"] = robust_mean(losses[:, best], delta, shares) + gaps.estimate
    among = "" if used == 1 else f" with {100 * mixture[best]:.3g}% of a blend of {used} fits"
    return told | {"why": f"Chosen: {name}{among}.", "guarantee": _SCOPE}
