"""What a fit tells beside its model, made when it is first asked for.

Until then copies of what it takes are kept, if they are small; otherwise it is made at once. So nothing that
the caller does to the rows afterwards matters.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.deferred import Make
from tailproof.core.held_out import held_out_errors
from tailproof.core.inference import CoefficientErrors
from tailproof.estimators.robust_regressor.candidates import LinearFit, RegressionTask
from tailproof.estimators.robust_regressor.inference import Blend, coefficient_errors, row_weights

_KEPT = 2_000_000  # numbers that are kept until they are asked for
_MADE_ANYWAY = 2  # times as many, of rows that a fit has scaled for itself
_LEADING = 20  # rows that a report names
_SURVEYED = 20_000  # rows for a first look at which count least
_LARGEST_SCORE = 300.0  # before it is exponentiated


def kept(numbers: int, make: Make, times: int = 1) -> Make:
    """The function, or what it gives now where it would keep more numbers than ``times`` the usual."""
    return make if numbers <= times * _KEPT else functools.partial(dict, make())


def errors_of_coefficients(blend: Blend, model: LinearFit, remark: str) -> Make:
    """``coefficient_errors_``, with a remark on what they are about; nothing where they are not known."""
    sample = blend if _size(blend) <= _KEPT else blend.sampled()
    centre = np.append(model.coef, model.intercept)
    return kept(_size(sample), functools.partial(_coefficient_errors, sample, centre, remark))


def _coefficient_errors(blend: Blend, centre: Array, remark: str) -> dict[str, CoefficientErrors]:
    errors = coefficient_errors(blend, centre)
    if errors is None:
        return {}
    return {"coefficient_errors_": replace(errors, how=f"{errors.how} {remark}".strip())}


def _size(blend: Blend) -> int:
    """Numbers of its rows; more than are kept, where these are the caller's own."""
    rows = blend.rows
    return int(rows.n * rows.width) if rows.ready or rows.n < blend.n else sys.maxsize


def errors_of_held_out_rows(model: Any, scores: Array, part: RegressionTask) -> Make:
    """``held_out_errors_`` of rows that have these predictions (before the link) when they are held out."""
    few = part.X.size <= _KEPT and not sparse.issparse(part.X)
    rows = replace(part, X=part.X.copy(), y=part.y.copy()) if few else part
    line = LinearFit(model.coef, model.intercept) if isinstance(model, LinearFit) else None
    return kept(0 if few else _KEPT + 1, functools.partial(_held_out_errors, scores, line, rows))


def _held_out_errors(scores: Array, model: LinearFit | None, part: RegressionTask) -> dict[str, Any]:
    scores = scores if model is None else _aligned(scores, model.scores(part.X), part)
    log = part.loss.link == "log"
    predicted = np.exp(np.minimum(scores, _LARGEST_SCORE)) if log else scores
    power = part.loss.parameter if log else 0.0
    errors = held_out_errors(part.y, predicted, power, part.shares(), part.X)
    return {} if errors is None else {"held_out_errors_": errors}


def _aligned(held_out: Array, fitted: Array, task: RegressionTask) -> Array:
    """Held-out predictions with the intercept of the model in place of that of each fold.

    Intercepts under heavy tails differ from fold to fold by more than the slopes do, and their scatter would
    blur the quantiles of the errors; that one number has seen the rows does not matter.
    """
    aligned = held_out.copy()
    for fold in task.folds:
        gap = fitted[fold] - held_out[fold]
        aligned[fold] += np.median(gap) if np.isfinite(gap).all() else 0.0
    return aligned


def weights_of_rows(blend: Blend, n: int, used: NDArray[np.intp], shares: Callable[[], Array]) -> Make:
    """``row_weights_`` of n rows, of which some were used, and what a report says about those of the least.

    ``shares`` gives the shares of the rows used in the sum of all losses. It is made once, whoever asks.
    """
    make = functools.cache(functools.partial(_leading_rows, blend, n, used, shares))
    return kept(_size(blend), make, _MADE_ANYWAY)


def only(make: Make, *names: str) -> dict[str, Make]:
    """Some of what a function makes, for an object that has no other."""

    def some() -> dict[str, Any]:
        return {name: value for name, value in make().items() if name in names}

    return dict.fromkeys(names, some)


def _leading_rows(
    blend: Blend, n: int, used: NDArray[np.intp], shares: Callable[[], Array]
) -> dict[str, Any]:
    weights, losses = row_weights(blend), shares()
    every = weights if used.size == n else _spread(weights, n, used)
    first = _first_rows(weights, losses, _LEADING)
    first = first[np.argsort(-losses[first], kind="stable")]
    return {
        "row_weights_": every,
        "leading_rows": used[first],
        "leading_weights": weights[first],
        "leading_shares": losses[first],
    }


def _spread(values: Array, n: int, places: NDArray[np.intp]) -> Array:
    """Values at their places among n zeros."""
    every = np.zeros(n)
    every[places] = values
    return every


def _first_rows(weights: Array, losses: Array, count: int) -> NDArray[np.intp]:
    """Rows of the least weights, and of equal ones those of the largest losses; not all need be sorted."""
    step = weights.size // _SURVEYED
    if step > 1:
        # What is among the least of some is among the least of all.
        limit = np.partition(weights[::step], count - 1)[count - 1]
        near = np.flatnonzero(weights <= limit)
        if near.size < weights.size // 2:
            return near[_first_rows(weights[near], losses[near], count)]
    if weights.size > count:
        limit = np.partition(weights, count - 1)[count - 1]
        below, at = np.flatnonzero(weights < limit), np.flatnonzero(weights == limit)
        wanted = count - below.size
        if at.size > wanted:
            least = np.partition(losses[at], at.size - wanted)[at.size - wanted]
            at = at[losses[at] >= least]
        few = np.sort(np.concatenate([below, at]))
    else:
        few = np.arange(weights.size)
    return few[np.lexsort((-losses[few], weights[few]))[:count]]
