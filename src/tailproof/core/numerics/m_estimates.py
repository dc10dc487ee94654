"""Statistics of every row of an (m, n) array: block means, scales and M-estimates.

The numerical core of :mod:`tailproof.means`. Weights are an array of n positive numbers, or an empty one
where all rows count the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfc

from tailproof.core import Array
from tailproof.core.numerics.compiled import REORDERED, compiled
from tailproof.core.numerics.quantiles import weighted_median

_RUN = 256  # values that go to one block together, at most: long enough to vectorise
_SHORT_RUN = 16  # up to here a loop over the values of one run is not worth starting
_ROUNDS = 1000  # of dealing, at least, before runs get longer than one value: sorted data must stay mixed
_SQRT2 = math.sqrt(2.0)
# E χ(Z) for standard normal Z and χ(x) = x²/(1+x²): makes Geman's M-scale consistent for the normal.
_GEMAN = 1.0 - math.sqrt(math.pi * math.e / 2.0) * float(erfc(1.0 / _SQRT2))
_VANISHED = 1e-9  # share of the standard deviation below which an M-scale is rounding
_LOG_VANISHED = math.log(_VANISHED)
PSI = {"polynomial": 0, "wide": 1, "gudermannian": 2}
_CHUNK = 64  # values that share one test for being small

# gd(x)/x in powers of x² on |x| ≤ 1, interpolated at Chebyshev's points: exact to 4e-11, and it vectorises.
_GD = (
    0.9999999999646467,
    -0.16666666092665236,
    0.04166651186402006,
    -0.012101550603578787,
    0.0038080370183070458,
    -0.001239229264277943,
    0.00038493102537932395,
    -9.554701734152906e-05,
    1.2991205139027545e-05,
)


def effective_size(values: Array, weights: Array) -> float:
    if weights.size == 0:
        return float(values.shape[1])
    relative = weights / weights.max()
    return float(relative.sum() ** 2 / (relative**2).sum())


def means_of_rows(values: Array, weights: Array) -> Array:
    if weights.size == 0:
        return values.mean(axis=1, dtype=np.float64)
    return np.asarray(values @ (weights / weights.sum()), dtype=np.float64)


def medians_of_means(values: Array, weights: Array, k: int, centres: Array, squared: bool) -> Array:
    """Median of means of u − c, or of (u − c)², for every row; NaN where a block is not finite."""
    sums, totals = _block_sums(values, weights, min(k, values.shape[1]), centres, squared)
    found = weighted_median(sums / totals, totals if weights.size else None)
    return np.where(np.isfinite(sums).all(axis=1), found, np.nan)


@compiled(REORDERED)
def _block_sums(values, weights, k, centres, squared):
    """Sums and total weights of k blocks of every row; runs of values dealt in turn, then the rest singly."""
    m, n = values.shape
    sums, totals = np.zeros((m, k)), np.zeros(k)
    run = min(max(n // (_ROUNDS * k), 1), _RUN)
    whole = n // (k * run) * k * run
    for row in range(m):
        totals[:] = 0.0
        if run <= _SHORT_RUN and weights.size == 0:
            _deal_short_runs(values[row], run, centres[row], squared, sums[row], totals)
            continue
        start, block = 0, 0
        while start < n:
            stop = start + (run if start < whole else 1)
            part, total = _run_sum(values, weights, row, start, stop, centres[row], squared)
            sums[row, block] += part
            totals[block] += total
            start, block = stop, (block + 1 if block + 1 < k else 0)
    return sums, totals


@compiled(REORDERED, part=True)
def _deal_short_runs(values, run, centre, squared, sums, totals):
    """The same, place after place of a run: few long loops instead of many short ones."""
    n, k = values.size, sums.size
    whole = n // (k * run) * k * run
    for first in range(k * run):
        part = 0.0
        for i in range(first, whole, k * run):
            x = values[i] - centre
            part += x * x if squared else x
        sums[first // run] += part
    totals[:] = float(whole // k)
    for i in range(whole, n):
        x = values[i] - centre
        sums[(i - whole) % k] += x * x if squared else x
        totals[(i - whole) % k] += 1.0


@compiled(REORDERED, part=True)
def _run_sum(values, weights, row, start, stop, centre, squared):
    # By index: a slice costs more than the few values of a short run.
    part, total = 0.0, float(stop - start)
    if weights.size == 0 and not squared:
        for i in range(start, stop):
            part += values[row, i] - centre
    elif weights.size == 0:
        for i in range(start, stop):
            part += (values[row, i] - centre) * (values[row, i] - centre)
    else:
        total = 0.0
        for i in range(start, stop):
            x = values[row, i] - centre
            part += weights[i] * (x * x if squared else x)
            total += weights[i]
    return part, total


def robust_scale(values: Array, weights: Array, k: int) -> Array:
    """Root of the median of means of squares about a median-of-means centre.

    Where more than half of the blocks are constant (a few claims among many zeros) it would vanish, and
    the sample standard deviation stands in.
    """
    centres = medians_of_means(values, weights, k, np.zeros(values.shape[0]), False)
    found = np.sqrt(medians_of_means(values, weights, k, centres, True))
    if np.any(found == 0):
        found = np.where(found == 0, sample_sd(values, weights, k), found)
    return _nan_where_squares_vanished(found, values)


def sample_sd(values: Array, weights: Array, k: int) -> Array:
    return _sd_about(means_of_rows(values, weights), values, weights)


def _sd_about(centres: Array, values: Array, weights: Array) -> Array:
    found = np.sqrt(_variances(values, weights, centres))
    return _nan_where_squares_vanished(np.where(np.isfinite(found), found, np.nan), values)


@compiled(REORDERED)
def _variances(values, weights, centres):
    found = np.empty(len(values))
    for row in range(len(values)):
        part, total = _run_sum(values, weights, row, 0, values.shape[1], centres[row], True)
        found[row] = part / total
    return found


def _nan_where_squares_vanished(found: Array, values: Array) -> Array:
    # NaN, as where squares overflow, asks the caller to try again with values of size one.
    if np.all(found > 1e-140):
        return found
    tiny = (found < 1e-140) & (np.abs(values).max(axis=1) < 1e-120)
    return np.where(tiny & (values.min(axis=1) < values.max(axis=1)), np.nan, found)


def upper_sd(values: Array, weights: Array, k: int) -> Array:
    """Return a standard deviation on the safe side: the robust one, or the sample's plus its own error.

    The sample variance has a standard error, sqrt(E(x² − σ²)²/n); two of them are added. A heavy tail that
    shows in the sample at all thus widens the result, by up to √3, and a light one hardly does.
    """
    size = row_sizes(values)
    centred = values / size[:, None]
    centred -= means_of_rows(centred, weights)[:, None]
    reach = row_sizes(centred)
    squares = (centred / reach[:, None]) ** 2
    variance = means_of_rows(squares, weights)
    error = np.sqrt(
        means_of_rows((squares - variance[:, None]) ** 2, weights) / effective_size(values, weights)
    )
    robust = robust_scale(centred, weights, k)
    return size * np.maximum(robust, reach * np.sqrt(variance + 2 * error))


def row_sizes(values: Array) -> Array:
    """Largest absolute value of every row, in double precision; 1 for a row of zeros."""
    sizes = np.abs(values).max(axis=1).astype(np.float64)
    sizes[sizes == 0] = 1.0
    return sizes


def m_scale(
    values: Array, weights: Array, k: int, near: Array | None = None, centres: Array | None = None
) -> Array:
    """Geman's M-scale about the mean: the s with mean χ((u − ū)/s) = E χ(Z), χ(x) = x²/(1 + x²).

    Where more than 1 − E χ(Z) of the values equal the mean there is none, and the standard deviation stands
    in. ``near`` are guesses and ``centres`` the means, which save time and change nothing else.
    """
    centres = means_of_rows(values, weights) if centres is None else centres
    limit = _sd_about(centres, values, weights)
    starts = limit if near is None else np.where((near > 0) & (near < np.inf), near, limit)
    found = _m_scales(values, weights, centres, starts, limit)
    return np.where(found > _VANISHED * limit, found, limit)


@compiled()
def _m_scales(values, weights, centres, starts, limits):
    found = starts.copy()
    for row in range(len(values)):
        if 0.0 < limits[row] < np.inf:
            found[row] = _m_scale_of(values[row], weights, centres[row], starts[row], limits[row])
    return found


@compiled(part=True)
def _m_scale_of(values, weights, centre, scale, limit):
    """Halley's method in log s inside a shrinking bracket: the mean of χ falls as s grows."""
    low, high, size = -np.inf, np.inf, np.log(scale)
    for iteration in range(200):
        level, slope, bend = _geman_sums(values, weights, centre, np.exp(-size))
        gap = level - _GEMAN
        if gap > 0.0:
            low = size
        else:
            high = size
        # A factor of ten at most; where χ is flat the sign alone says where to go.
        below = 2.0 * slope * slope + gap * bend
        step = gap * slope / below if below > 0.0 else np.copysign(np.inf, gap)
        # The error that is left is of the order of the cube of the last step.
        if abs(step) <= 3e-4:
            size += step
            break
        following = size + min(max(step, -2.3), 2.3)
        if not low < following < high or (iteration > 30 and iteration % 3 == 0 and high - low < np.inf):
            following = 0.5 * low + 0.5 * high
        moved = abs(following - size)
        size = following
        if moved <= 1e-12 or size < np.log(limit) + _LOG_VANISHED:
            break
    return np.exp(size)


@compiled(REORDERED, part=True, divides_by_zero=True)
def _geman_sums(values, weights, centre, inverse):
    """Means of χ(x), of χ(1 − χ) and of χ(1 − χ)(2χ − 1) at x = (u − centre)/s: χ and its slopes in log s."""
    total, level, slope, bend = float(values.size), 0.0, 0.0, 0.0
    if weights.size == 0:
        for i in range(values.size):
            x = (values[i] - centre) * inverse
            rest = 1.0 / (1.0 + x * x)
            steep = rest - rest * rest
            level += rest
            slope += steep
            bend += steep * (1.0 - 2.0 * rest)
    else:
        total = weights.sum()
        for i in range(values.size):
            x = (values[i] - centre) * inverse
            rest = 1.0 / (1.0 + x * x)
            steep = weights[i] * (rest - rest * rest)
            level += weights[i] * rest
            slope += steep
            bend += steep * (1.0 - 2.0 * rest)
    return 1.0 - level / total, slope / total, bend / total


SCALES: dict[str, Callable[..., Array]] = {
    "robust": robust_scale,
    "sd": sample_sd,
    "m-scale": m_scale,
}


def m_estimates(values: Array, weights: Array, starts: Array, scales: Array, code: int) -> Array:
    """For every row the root θ of Σ w ψ((u − θ)/s) = 0; the start where the scale is zero, NaN where NaN.

    Parameters
    ----------
    values : array of shape (m, n)
    weights : array of shape (n,), or empty
    starts, scales : arrays of shape (m,)
    code : int
        Which ψ: a value of ``PSI``.
    """
    found, flat = _m_estimates(values, weights, np.where(np.isnan(scales), np.nan, starts), scales, code)
    for row in np.flatnonzero(flat):
        # A scale so small that no value was within reach: the roots surround the median.
        middle = float(weighted_median(values[row], weights if weights.size else None))
        found[row], _ = _m_estimate(values[row], weights, middle, scales[row], code)
    return found


@compiled()
def _m_estimates(values, weights, starts, scales, code):
    found, flat = starts.copy(), np.zeros(starts.size, dtype=np.bool_)
    for row in range(starts.size):
        if scales[row] > 0.0 and np.isfinite(starts[row]):
            found[row], flat[row] = _m_estimate(values[row], weights, starts[row], scales[row], code)
    return found, flat


@compiled(part=True)
def _m_estimate(values, weights, theta, scale, code):
    """Newton's method inside a shrinking bracket: the sum falls as θ grows, so its sign gives the side."""
    low, high, flat = -np.inf, np.inf, False
    mass = weights.sum() if weights.size else float(values.size)
    for iteration in range(300):
        total, slope = psi_sums(values, weights, theta, scale, code)
        flat = flat or slope <= 0.0
        # Where no value is within reach the sum is a multiple of a constant, up to rounding.
        if total == 0.0 or (slope <= 0.0 and abs(total) <= 1e-12 * values.size):
            break
        if total > 0.0:
            low = theta
        else:
            high = theta
        step = scale * total / slope if slope > 0.0 else np.inf
        # The error that Newton's step leaves is at most its square, over the share of values within reach.
        if abs(step) <= max(1e-6 * scale * slope / mass, 1e-16 * abs(theta)):
            theta += step
            break
        following = theta + step
        # Every third step of a slow search halves the bracket, so that it must end.
        if not low < following < high or (iteration > 30 and iteration % 3 == 0):
            # The ends of the sample are looked up only where they are needed: it takes a pass.
            low = float(values.min()) if low == -np.inf else low
            high = float(values.max()) if high == np.inf else high
            following = 0.5 * low + 0.5 * high
        moved = abs(following - theta)
        theta = following
        if moved <= max(1e-12 * scale, 1e-16 * abs(theta)):
            break
    return theta, flat


@compiled(REORDERED, part=True, divides_by_zero=True)
def psi_sums(values, weights, theta, scale, code):
    """Σ w ψ(x) and Σ w ψ′(x) at x = (u − θ)/s; one loop per ψ, so that each vectorises."""
    total, slope, inverse = 0.0, 0.0, 1.0 / scale
    if code == 0 and weights.size == 0:
        for i in range(values.size):
            x = min(max((values[i] - theta) * inverse, -_SQRT2), _SQRT2)
            total += x - x * x * x / 6.0
            slope += 1.0 - 0.5 * x * x
    elif code == 0:
        for i in range(values.size):
            x = min(max((values[i] - theta) * inverse, -_SQRT2), _SQRT2)
            total += weights[i] * (x - x * x * x / 6.0)
            slope += weights[i] * (1.0 - 0.5 * x * x)
    elif code == 2:
        for start in range(0, values.size, _CHUNK):
            stop = min(start + _CHUNK, values.size)
            more, steep, outside = _gudermannian_sums(values, weights, start, stop, theta, inverse)
            total += more
            slope += steep
            if outside != 0.0:
                more, steep = _gudermannian_mend(values, weights, start, stop, theta, inverse)
                total += more
                slope += steep
    else:
        for i in range(values.size):
            x = (values[i] - theta) * inverse
            size = min(abs(x), 1e150)  # its square must stay finite
            inner = size + 0.5 * size * size
            weight = weights[i] if weights.size else 1.0
            total += weight * np.copysign(np.log1p(inner), x)
            slope += weight * (1.0 + size) / (1.0 + inner)
    return total, slope


@compiled(REORDERED, part=True, divides_by_zero=True)
def _gudermannian_sums(values, weights, start, stop, theta, inverse):
    """The sums of ψ(x) = 2 atan(exp x) − π/2 with x clipped to [−1, 1], and what was clipped."""
    total, slope, outside = 0.0, 0.0, 0.0
    if weights.size == 0:
        for i in range(start, stop):
            x = (values[i] - theta) * inverse
            inside = min(max(x, -1.0), 1.0)
            outside += abs(x - inside)
            value, steep = _gudermannian_inside(inside)
            total += value
            slope += steep
    else:
        for i in range(start, stop):
            x = (values[i] - theta) * inverse
            inside = min(max(x, -1.0), 1.0)
            outside += abs(x - inside)
            value, steep = _gudermannian_inside(inside)
            total += weights[i] * value
            slope += weights[i] * steep
    return total, slope, outside


@compiled(REORDERED, part=True, divides_by_zero=True)
def _gudermannian_mend(values, weights, start, stop, theta, inverse):
    """What clipping took from the sums."""
    total, slope = 0.0, 0.0
    for i in range(start, stop):
        x = (values[i] - theta) * inverse
        if not abs(x) <= 1.0:
            weight = weights[i] if weights.size else 1.0
            value, steep = _gudermannian_inside(np.copysign(1.0, x))
            decay = np.exp(-abs(x))
            total += weight * (np.copysign(0.5 * np.pi - 2.0 * np.arctan(decay), x) - value)
            slope += weight * (2.0 * decay / (1.0 + decay * decay) - steep)
    return total, slope


@compiled(REORDERED, divides_by_zero=True, inline="always")
def _gudermannian_inside(x):
    """ψ and ψ′ = cos ψ on [−1, 1]; the slope to five digits, which is plenty for Newton's method."""
    t = x * x
    p = _GD[4] + t * (_GD[5] + t * (_GD[6] + t * (_GD[7] + t * _GD[8])))
    value = x * (_GD[0] + t * (_GD[1] + t * (_GD[2] + t * (_GD[3] + t * p))))
    u = value * value
    return value, 1.0 - u * (0.5 - u * (1.0 / 24.0 - u / 720.0))
