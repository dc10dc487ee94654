"""Logistic regressions that a RobustClassifier chooses from: plain, penalised, and with bounded influence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse, special

from tailproof.core import Array

_SOLVER_STEPS = 300
_CLIPPING_ROUNDS = 4
_MALLOWS = (1.0, 2.0)  # powers of what rows of more than twice the usual leverage are weighed down by
_CLIPS = (2.0, 1.0)  # influence of a row, residual times root of relative leverage, at most
_TRIM = 1.5  # rows of more influence are left out
_MOST_RIDGE = 1.0  # of the plain fit, in rows: scikit-learn's default, for scaled columns
_RIDGE_ROUNDS = 3  # a weaker ridge lengthens slopes, which ask for a weaker one: without end where separable
_SLOPES_BEFORE = 4.0  # of size one, beside those at hand: one or two slopes do not tell how long slopes are
_STRONGER = (10.0, 100.0)  # times the ridge of the plain fit


@dataclass(frozen=True)
class LabelledRows:
    """Scaled rows with a column for each output: 0 or 1.

    Attributes
    ----------
    Z : array or sparse matrix of shape (n, d)
    Y : array of shape (n, outputs)
        One column for two classes, else one a class.
    weights : array of shape (n,)
    leverage : array of shape (n,)
        ‖z‖² over its median.
    fit_intercept : bool
    ridge : float
        Penalty of all fits, in rows: ridge/2 ‖slopes‖² beside a sum of log losses.
    """

    Z: Any
    Y: Array
    weights: Array
    leverage: Array
    fit_intercept: bool
    ridge: float = _MOST_RIDGE

    def take(self, rows: NDArray[np.intp]) -> LabelledRows:
        """The same for a part of the rows."""
        return replace(
            self,
            Z=self.Z[rows],
            Y=self.Y[rows],
            weights=self.weights[rows],
            leverage=self.leverage[rows],
        )

    def scores(self, theta: Array) -> Array:
        """Linear scores of every output; the last row of θ has the intercepts."""
        return np.asarray(self.Z @ theta[:-1]) + theta[-1]

    def losses(self, theta: Array) -> Array:
        """Log loss of every row."""
        p = self.scores(theta)
        if self.Y.shape[1] == 1:
            return np.asarray(np.logaddexp(0.0, np.where(self.Y[:, 0] > 0, -p[:, 0], p[:, 0])))
        return np.asarray(special.logsumexp(p, axis=1) - (p * self.Y).sum(axis=1))

    def residuals(self, theta: Array) -> Array:
        """Probabilities minus labels."""
        p = self.scores(theta)
        return (special.expit(p) if self.Y.shape[1] == 1 else special.softmax(p, axis=1)) - self.Y

    def influence(self, theta: Array) -> Array:
        """Size of a row's residual times the root of its leverage: how hard it pulls."""
        return np.abs(self.residuals(theta)).max(axis=1) * np.sqrt(self.leverage)


def minimise(rows: LabelledRows, extra: Array | float, start: Array, stronger: float = 1.0) -> Array:
    """θ of least weighted log loss; ``extra`` multiplies the weights, ``stronger`` the ridge."""
    ridge = stronger * rows.ridge / rows.Y.shape[0]
    weights = rows.weights * extra
    shares = weights / weights.sum()
    constant = float(rows.fit_intercept)

    def objective(flat: Array) -> tuple[float, Array]:
        theta = flat.reshape(start.shape)
        pull = rows.residuals(theta) * shares[:, None]
        gradient = np.vstack([rows.Z.T @ pull + ridge * theta[:-1], constant * pull.sum(axis=0)])
        value = float(shares @ rows.losses(theta) + 0.5 * ridge * (theta[:-1] ** 2).sum())
        return value, gradient.ravel()

    options = {"maxiter": _SOLVER_STEPS, "gtol": 1e-6}
    optimum = optimize.minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(optimum.x.reshape(start.shape))


Fit = Callable[[LabelledRows, Array], Array]


def _penalised(stronger: float) -> Fit:
    return lambda rows, start: minimise(rows, 1.0, start, stronger)


def _mallows(power: float) -> Fit:
    def fit(rows: LabelledRows, start: Array) -> Array:
        down = np.minimum(1.0, 2.0 / np.maximum(rows.leverage, 1e-300)) ** power
        return minimise(rows, down, start)

    return fit


def _clipped(limit: float) -> Fit:
    def fit(rows: LabelledRows, start: Array) -> Array:
        theta = _mallows(_MALLOWS[-1])(rows, start)
        for _ in range(_CLIPPING_ROUNDS):
            down = np.minimum(1.0, limit / np.maximum(rows.influence(theta), 1e-300))
            theta = minimise(rows, down, theta)
        return theta

    return fit


def _trimmed(rows: LabelledRows, start: Array) -> Array:
    theta = _clipped(_CLIPS[-1])(rows, start)
    for _ in range(2):
        kept = rows.influence(theta) <= _TRIM
        theta = minimise(rows, np.where(kept, 1.0, 0.0) if kept.any() else 1.0, theta)
    return theta


# From plain to the most robust; the first is the reference.
FITS: dict[str, Fit] = {
    "plain": _penalised(1.0),
    "ridge × 10": _penalised(_STRONGER[0]),
    "ridge × 100": _penalised(_STRONGER[1]),
    "Mallows weights": _mallows(_MALLOWS[0]),
    "Mallows weights squared": _mallows(_MALLOWS[1]),
    "clipped at 2": _clipped(_CLIPS[0]),
    "clipped at 1": _clipped(_CLIPS[1]),
    "trimmed": _trimmed,
}


def relative_leverage(Z: Any) -> Array:
    """‖z‖² of every row over their median."""
    squares = Z.multiply(Z).sum(axis=1) if sparse.issparse(Z) else (Z**2).sum(axis=1)
    squares = np.ravel(np.asarray(squares))
    return squares / max(float(np.median(squares)), float(squares.mean()) * 1e-6, 1e-300)


def ridge_for_slopes(rows: LabelledRows, start: Array) -> float:
    """One over the mean square of the slopes, as a normal prior of their size would have it; at most 1.

    In columns of heavy tails a scale is large beside most values, slopes are long, and a ridge of 1 would
    shorten them by more than their standard errors. Rows far out, perhaps mislabelled, hardly count. With
    some slopes of size one beside them, few do not look long by chance; constant columns have none.

    Examples
    --------
    >>> Z = np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])
    >>> Y = (Z > 0).astype(float)
    >>> start = np.zeros((2, 1))
    >>> ridge_for_slopes(LabelledRows(Z, Y, np.ones(6), relative_leverage(Z), True), start) < 1.0
    True
    """
    # Softmax slopes add up to zero over classes.
    free = _SLOPES_BEFORE + _varying(rows.Z) * max(1, rows.Y.shape[1] - 1)
    theta = start
    for _ in range(_RIDGE_ROUNDS):
        theta = _mallows(_MALLOWS[-1])(rows, theta)
        squares = _SLOPES_BEFORE + float((theta[:-1] ** 2).sum())
        rows = replace(rows, ridge=min(_MOST_RIDGE, free / squares))
    return rows.ridge


def _varying(Z: Any) -> int:
    """How many columns have more than one value."""
    low, high = (ends.toarray() if sparse.issparse(Z) else ends for ends in (Z.min(axis=0), Z.max(axis=0)))
    return int(np.count_nonzero(high > low))
