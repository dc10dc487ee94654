"""Reductions along any axis of an array: checks, weights, precision, and numbers whose squares overflow."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.numerics.m_estimates import row_sizes
from tailproof.core.numerics.quantiles import check_weights

_NO_WEIGHTS = np.empty(0)
_SMALLEST = 1e-100  # of a scale, relative to the values


def reduce_axis(
    rows: Callable[..., Array],
    u: ArrayLike,
    axis: int,
    weights: ArrayLike | None,
    delta: float,
    sigma: ArrayLike | None = None,
) -> Array:
    """Apply ``rows(values of shape (m, n), weights[, sigma])`` along an axis; restore shape, precision."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}")
    values, shape = _as_rows(u, axis)
    found = check_weights(weights, values.shape[1])
    checked = _NO_WEIGHTS if found is None else found
    if not checked.all():
        values, checked = np.ascontiguousarray(values[:, checked > 0]), checked[checked > 0]
    known = () if sigma is None else (_given_scale(sigma, values.shape[0]),)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        estimates = rows(values, checked, *known)
        bad = ~np.isfinite(estimates)
        if np.any(bad):
            estimates[bad] = _retry_scaled(rows, values[bad], checked, *(given[bad] for given in known))
    return estimates.astype(values.dtype, copy=False).reshape(shape)[()]


def _as_rows(u: ArrayLike, axis: int) -> tuple[Array, tuple[int, ...]]:
    if np.ma.isMaskedArray(u):
        raise ValueError(
            "masked arrays are not supported: pass u.compressed(), or weights of 0 for absent values"
        )
    array = np.asarray(u)
    if array.ndim == 0:
        raise ValueError("a sample needs at least one dimension; got a single number")
    if array.dtype.kind == "c":
        raise ValueError("complex values have no robust mean here; pass real and imaginary part separately")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    moved = np.moveaxis(array, _whole("axis", axis), -1)
    if moved.shape[-1] == 0:
        raise ValueError("the sample is empty: at least one value is needed")
    return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1]), moved.shape[:-1]


def _retry_scaled(rows: Callable[..., Array], values: Array, weights: Array, *known: Array) -> Array:
    """Name the bad input, or, where sums or squares left the range of floats, compute at scale one."""
    if not np.all(np.isfinite(values)):
        kind = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(f"the sample contains {kind}: remove or replace such values first")
    sizes = row_sizes(values)
    relative = (np.clip(given / sizes, _SMALLEST, 1 / _SMALLEST) for given in known)
    return rows(values / sizes[:, None], weights, *relative) * sizes


def _given_scale(sigma: ArrayLike, m: int) -> Array:
    given = np.broadcast_to(np.asarray(sigma, dtype=np.float64).ravel(), (m,))
    if np.all(np.isfinite(given)) and np.all(given >= 0):
        return given
    raise ValueError("sigma must be finite and not negative")


def _whole(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number; got {value!r}") from None
