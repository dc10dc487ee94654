"""Logistic regressions that a RobustClassifier chooses from: plain, penalised, and with bounded influence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
_RIDGES = (1.0, 10.0, 100.0)  # in rows; the first is scikit-learn's default, for scaled columns


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
    """

    Z: Any
    Y: Array
    weights: Array
    leverage: Array
    fit_intercept: bool

    def take(self, rows: NDArray[np.intp]) -> LabelledRows:
        """The same for a part of the rows."""
        return LabelledRows(
            self.Z[rows], self.Y[rows], self.weights[rows], self.leverage[rows], self.fit_intercept
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


def minimise(rows: LabelledRows, extra: Array | float, ridge: float, start: Array) -> Array:
    """θ of least weighted mean log loss plus ridge/2 ‖slopes‖²; ``extra`` multiplies the weights."""
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


def _penalised(strength: float) -> Fit:
    return lambda rows, start: minimise(rows, 1.0, strength / rows.Y.shape[0], start)


def _mallows(power: float) -> Fit:
    def fit(rows: LabelledRows, start: Array) -> Array:
        down = np.minimum(1.0, 2.0 / np.maximum(rows.leverage, 1e-300)) ** power
        return minimise(rows, down, _RIDGES[0] / rows.Y.shape[0], start)

    return fit


def _clipped(limit: float) -> Fit:
    def fit(rows: LabelledRows, start: Array) -> Array:
        theta = _mallows(_MALLOWS[-1])(rows, start)
        for _ in range(_CLIPPING_ROUNDS):
            down = np.minimum(1.0, limit / np.maximum(rows.influence(theta), 1e-300))
            theta = minimise(rows, down, _RIDGES[0] / rows.Y.shape[0], theta)
        return theta

    return fit


def _trimmed(rows: LabelledRows, start: Array) -> Array:
    theta = _clipped(_CLIPS[-1])(rows, start)
    for _ in range(2):
        kept = rows.influence(theta) <= _TRIM
        theta = minimise(rows, np.where(kept, 1.0, 0.0) if kept.any() else 1.0, _RIDGES[0] / len(kept), theta)
    return theta


# From plain to the most robust; the first is the reference.
FITS: dict[str, Fit] = {
    "plain": _penalised(_RIDGES[0]),
    "ridge 10": _penalised(_RIDGES[1]),
    "ridge 100": _penalised(_RIDGES[2]),
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
