"""Huber's regression with an l1 penalty, for tables in which few columns matter and rows are few.

A level of truncation τ and a penalty λ minimise Σ vρ_τ(y − z'θ) + λ Σ|θ_j|, v being shares of the rows, over
scaled columns and a constant that is not penalised. Few coefficients differ from zero, so that a working set
of columns does most of the work; a gradient over all columns then says which others belong to it. Dense rows
take coordinate descent, sparse ones accelerated proximal steps (Beck & Teboulle, 2009). Penalties go from
strong to weak, each from the solution before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.automatic import robust_shifts, share_of_untied_targets
from tailproof.native.lasso import Limits, lasso_path

_ROUNDS = 12  # of a working set that grows
_LEAST_GROWTH = 10  # columns of a round
_FEW_ROWS = 3  # a column: a model with fewer is none of few columns
_POWERS, _ROUGHLY = 60, 0.0005  # iterations for an eigenvalue, and its change in the last of them
_SPARE = 0.04  # of that eigenvalue, for what further iterations would add


@dataclass(frozen=True)
class LassoProblem:
    """Rows, targets and shares of rows, which add up to one; the last column is the constant.

    Parameters
    ----------
    Z : array or sparse array of shape (n, width)
        Scaled columns, and ones (zeros without an intercept).
    y, shares : arrays of shape (n,)
        A row without a share is as if absent.
    tau : float
        Truncation; infinite for least squares.
    tolerance : float
        Of a step, against the solution, and of a gradient, against the penalty: far below the error of a fit.
    steps : int
        At most, on one working set.
    """

    Z: Any
    y: Array
    shares: Array
    tau: float
    tolerance: float = 1e-3
    steps: int = 300

    def gradient(self, theta: Array) -> Array:
        """What the loss falls by along every column: Σ vψ(r)z."""
        return np.asarray(self.Z.T @ self._pull(self.y - self.Z @ theta))

    def _pull(self, r: Array) -> Array:
        return self.shares * np.clip(r, -self.tau, self.tau)

    def largest_penalty(self, start: Array) -> float:
        """The least λ at which no column but the constant is used."""
        constant = self.solve(np.inf, start)
        return float(np.abs(self.gradient(constant)[:-1]).max(initial=0.0))

    def path(self, penalties: Array, few: bool = False) -> Array:
        """θ for every penalty, from strong to weak, a row each; those of ``few`` columns alone, if asked."""
        return self._from(np.zeros(self.Z.shape[1]), penalties, self.y.size // _FEW_ROWS if few else None)

    def solve(self, penalty: float, start: Array) -> Array:
        """θ for one penalty.

        Examples
        --------
        >>> Z = np.column_stack([np.eye(4), np.ones(4)])
        >>> problem = LassoProblem(Z, np.array([8.0, 0.0, 0.0, 0.0]), np.full(4, 0.25), np.inf)
        >>> problem.solve(0.5, np.zeros(5)).round(2).tolist()
        [5.33, 0.0, 0.0, 0.0, 0.67]
        """
        return np.asarray(self._from(start, np.array([penalty]))[0])

    def _from(self, start: Array, penalties: Array, most: int | None = None) -> Array:
        """A path from any start, up to the first θ of more columns than that."""
        room = int(np.count_nonzero(self.shares)) // 2
        most = start.size if most is None else most
        if not sparse.issparse(self.Z):
            limits = Limits(self.steps, _ROUNDS, _LEAST_GROWTH, room, most)
            arrays = (self._columns, self.y, self.shares)
            return lasso_path(*arrays, self.tau, penalties, start, self.tolerance, limits)
        found: list[Array] = []
        for penalty in penalties.tolist():
            start = self._grown(penalty, start, room)
            if np.count_nonzero(start) > most:
                break
            found.append(start)
        return np.array(found).reshape(-1, start.size)

    @functools.cached_property
    def _columns(self) -> Array:
        """Dense columns one after the other."""
        return np.ascontiguousarray(self.Z.T)

    def without(self, fold: NDArray[np.intp]) -> LassoProblem:
        """The problem of the other rows; it shares the columns."""
        shares = self.shares.copy()
        shares[fold] = 0.0
        other = replace(self, shares=shares / shares.sum())
        if not sparse.issparse(self.Z):
            vars(other)["_columns"] = self._columns
        return other

    def _grown(self, penalty: float, start: Array, room: int) -> Array:
        """θ for one penalty of sparse rows, by a working set that grows."""
        theta = start.copy()
        used = np.append(np.flatnonzero(theta[:-1]), theta.size - 1)
        for _ in range(_ROUNDS):
            theta[used] = self._restricted(used, penalty, theta[used])
            gradient = np.abs(self.gradient(theta))
            gradient[used] = 0.0
            more = np.flatnonzero(gradient > penalty * (1.0 + self.tolerance))
            growth = min(max(_LEAST_GROWTH, used.size), room - used.size)
            if more.size == 0 or growth <= 0:
                break
            more = more[np.argsort(-gradient[more], kind="stable")[:growth]]
            used = np.sort(np.concatenate([used, more]))
        return theta

    def _restricted(self, used: NDArray[np.intp], penalty: float, start: Array) -> Array:
        """Accelerated proximal steps over some columns, the constant last."""
        # Columns of one size: rare ones would hardly move.
        A, norms = _columns_of_one_size(self.Z[:, used], self.shares)
        step = 1.0 / max(_largest_eigenvalue(A, self.shares), 1e-300)
        limit = penalty * step / norms
        limit[-1] = 0.0
        here = ahead = start * norms
        momentum = 1.0
        for _ in range(self.steps):
            target = ahead + step * (A.T @ self._pull(self.y - A @ ahead))
            following = np.sign(target) * np.maximum(np.abs(target) - limit, 0.0)
            change = following - here
            if (ahead - following) @ change > 0:  # the momentum leads astray: start it anew
                momentum = 1.0
            grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            here, ahead = following, following + (momentum - 1.0) / grown * change
            momentum = grown
            if change @ change <= self.tolerance**2 * (following @ following):
                break
        return np.asarray(here / norms)


def _columns_of_one_size(A: Any, shares: Array) -> tuple[Any, Array]:
    """Sparse columns over their root mean squares, and these; a column of zeros stays."""
    norms = np.sqrt(A.multiply(A).T @ shares)
    norms[norms == 0] = 1.0
    return sparse.csr_array(A @ sparse.diags_array(1.0 / norms)), norms


def _largest_eigenvalue(A: Any, shares: Array) -> float:
    """Of A'VA, from products with A alone, rather too large than too small: it only sets the length of steps.

    Examples
    --------
    >>> A = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> bool(4.0 <= _largest_eigenvalue(A, np.ones(2)) <= 4.5)
    True
    """
    v, size = np.ones(A.shape[1]), 0.0
    for _ in range(_POWERS):
        v = A.T @ (shares * (A @ (v / max(np.sqrt(v @ v), 1e-300))))
        before, size = size, float(np.sqrt(v @ v))
        if size - before <= _ROUGHLY * size:
            break
    return size * (1.0 + _SPARE)


@dataclass(frozen=True)
class LassoFits:
    """Fits of one level at several penalties, recentred: θ as columns, and held-out predictions as rows."""

    penalties: Array
    theta: Array
    held_out: Array


def lasso_fits(
    problem: LassoProblem,
    shrinkages: Sequence[float],
    folds: Sequence[NDArray[np.intp]],
    delta: float,
    loss: Any,
) -> LassoFits:
    """Fit all rows, and all rows but each fold.

    Parameters
    ----------
    problem : LassoProblem
    shrinkages : sequence of float
        Penalties as shares of the least one that leaves no column, falling.
    folds : sequence of int arrays
    delta : float
    loss : Loss
        Of the recentring.
    """
    nothing = np.zeros(problem.Z.shape[1])
    penalties = problem.largest_penalty(nothing) * np.array(shrinkages)
    theta = problem.path(penalties, few=True)
    theta = theta if len(theta) else problem.solve(np.inf, nothing)[None]
    penalties = penalties[: len(theta)]
    held_out = np.full((penalties.size, problem.y.size), np.nan)
    for fold in folds:
        # From the start again: what is left of a fit that has seen the fold would be a leak.
        part = problem.without(fold)
        held_out[:, fold] = _recentred(part, part.path(penalties), delta, loss)[1][:, fold]
    return LassoFits(penalties, _recentred(problem, theta, delta, loss)[0].T, held_out)


def _recentred(problem: LassoProblem, theta: Array, delta: float, loss: Any) -> tuple[Array, Array]:
    """θ, a row each, with the intercepts of truncated fits at the mean, and predictions of all rows."""
    predictions = np.asarray((problem.Z @ theta.T).T)
    constant = problem.Z[:1][:, [-1]]
    fit_intercept = bool((constant.toarray() if sparse.issparse(constant) else constant).any())
    if not fit_intercept or np.isinf(problem.tau):
        return theta, predictions
    seen = problem.shares > 0
    weights = None if np.ptp(problem.shares[seen]) == 0 else problem.shares[seen]
    y = problem.y[seen]
    p = np.ascontiguousarray(predictions[:, seen])
    shifts = robust_shifts(loss, p, y, weights, delta, share_of_untied_targets(y, weights))
    moved = theta.copy()
    moved[:, -1] += shifts
    return moved, predictions + shifts[:, None]


def truncation(problem: LassoProblem, share: float, penalty: float) -> float:
    """τ with the given share of residuals beyond it, of a fit truncated by the spread of the targets."""
    away = np.abs(problem.y - np.median(problem.y))
    first = replace(problem, tau=max(float(np.quantile(away, 1 - share)), 1e-300))
    theta = first.solve(penalty, np.zeros(problem.Z.shape[1]))
    return max(float(np.quantile(np.abs(problem.y - problem.Z @ theta), 1 - share)), 1e-9 * float(away.max()))
