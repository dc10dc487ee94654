"""An increasing score of the noise, and the sums over rows that slopes by it need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import COUNT, F64, NUMBER, POINTER, address, at_least_one, check, declare, read

Array = NDArray[Any]

_NUMBERS = 8  # after the two sums of rows
_MOST_BINS = 64

_score_sums = declare(
    "score_sums",
    *(POINTER, COUNT, COUNT, POINTER, POINTER, POINTER),
    *(POINTER, POINTER, POINTER, POINTER, COUNT, NUMBER, NUMBER, POINTER),
)
_score_of_rows = declare("score_of_rows", POINTER, COUNT, POINTER, POINTER, COUNT, POINTER, POINTER)
_pulls_of_noise = declare(
    "pulls_of_noise", POINTER, COUNT, POINTER, POINTER, POINTER, COUNT, NUMBER, *[POINTER] * 4
)
_concave_corners = declare("concave_corners", POINTER, POINTER, COUNT, POINTER, returns=COUNT)
_best_score = declare(
    "best_score", POINTER, POINTER, COUNT, COUNT, NUMBER, NUMBER, POINTER, POINTER, returns=COUNT
)


def score_sums(
    Z: Array,
    y: Array,
    v: Array | None,
    reach: Array,
    theta: Array,
    plain: Array,
    knots: Array,
    values: Array,
    mean: float,
    information: float,
) -> Array:
    """Sums over rows with a score ψ of r = y − z'θ that is linear between knots and constant beyond.

    Parameters
    ----------
    Z : array of shape (n, width)
    y, v, reach : arrays of shape (n,)
        Targets, weights (none are ones), and a factor h of every row.
    theta, plain : arrays of shape (width,)
        Slopes, and others to compare with.
    knots, values : arrays of shape (count,)
        Of ψ; knots increase.
    mean, information : float

    Returns
    -------
    array of shape (2 width + 8,)
        Σ vψz and Σ vz; Σ v, vψ, vψ′, v²ψ², v²ψ, v²; Σ vh and Σ h(v((ψ − mean)/information − y + z'plain))².

    Examples
    --------
    >>> one, none, clip = np.ones(1), np.zeros(1), np.array([-1.0, 1.0])
    >>> score_sums(np.full((1, 1), 3.0), 2 * one, one, one, none, none, clip, clip, 0.0, 1.0).tolist()
    [3.0, 3.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    (n, width), count = Z.shape, at_least_one("the number of knots", knots.size)
    sums = np.empty(2 * width + _NUMBERS)
    shares = None if v is None else read("v", v, F64, (n,))
    rows = read("y", y, F64, (n,)), shares, read("reach", reach, F64, (n,))
    slopes = (read(name, a, F64, (width,)) for name, a in (("theta", theta), ("plain", plain)))
    psi = read("knots", knots, F64, (count,)), read("values", values, F64, (count,)), count
    tables = read("Z", Z, F64, (n, width)), n, width
    check(_score_sums(*tables, *rows, *slopes, *psi, mean, information, address("sums", sums)))
    return sums


def score_of_rows(r: Array, knots: Array, values: Array) -> tuple[Array, Array]:
    """ψ(r), linear between knots and constant beyond, and ψ′(r), at a knot the mean of both sides.

    Examples
    --------
    >>> clip = np.array([-1.0, 1.0])
    >>> [found.tolist() for found in score_of_rows(np.array([-3.0, 0.5, 1.0]), clip, clip)]
    [[-1.0, 0.5, 1.0], [0.0, 1.0, 0.5]]
    """
    count, size = at_least_one("the number of knots", knots.size), r.shape
    psi, slopes = np.empty(size), np.empty(size)
    check(
        _score_of_rows(
            read("r", r, F64, size), r.size,
            *(read("knots and values", a, F64, (count,)) for a in (knots, values)), count,
            address("psi", psi), address("slopes", slopes),
        )
    )  # fmt: skip
    return psi, slopes


def pulls_of_noise(
    noise: Array, v: Array, knots: Array, values: Array, least: float
) -> tuple[Array, Array, Array, Array]:
    """What a score ψ makes of noise ε that has one law, with shares v of the rows.

    Parameters
    ----------
    noise, v : arrays of shape (n,)
    knots, values : arrays of shape (count,)
        Of ψ; knots increase.
    least : float
        Of the variance σ² of the noise.

    Returns
    -------
    rows, mean, sizes : arrays of shape (n,)
        With h = ψ − E ψ, vh, vε/σ² and v(hε − E hε).
    factors : array of shape (4,)
        E ψ′, E ψ′ε, E ψ′ε² + E hε and 1/σ².

    Examples
    --------
    >>> clip, noise = np.array([-1.0, 1.0]), np.array([-3.0, 0.5, 2.5])
    >>> rows, _, _, factors = pulls_of_noise(noise, np.full(3, 1 / 3), clip, clip, 1e-300)
    >>> rows.round(3).tolist(), factors[0].round(3).tolist()
    ([-0.389, 0.111, 0.278], 0.333)
    """
    (n,), count = noise.shape, at_least_one("the number of knots", knots.size)
    rows, mean, sizes, factors = np.empty(n), np.empty(n), np.empty(n), np.empty(4)
    psi = *(read("knots and values", a, F64, (count,)) for a in (knots, values)), count
    found = (address("found", a) for a in (rows, mean, sizes, factors))
    check(_pulls_of_noise(read("noise", noise, F64, (n,)), n, read("v", v, F64, (n,)), *psi, least, *found))
    return rows, mean, sizes, factors


def concave_corners(x: Array, y: Array) -> NDArray[np.int64]:
    """Which points of a curve are corners of its least concave majorant; x increases.

    Examples
    --------
    >>> concave_corners(np.arange(4.0), np.array([0.0, 2.0, 1.0, 1.5])).tolist()
    [0, 1, 3]
    """
    corners = np.empty(x.size, dtype=np.int64)
    curve = (read("x and y", a, F64, (x.size,)) for a in (x, y))
    return corners[: int(_concave_corners(*curve, x.size, address("corners", corners)))]


def best_score(
    ordered: Array, below: Array | None, bins: int, rounding: float, narrowest: float
) -> tuple[Array, Array]:
    """Knots and values of the best increasing score of a law of residuals; none where half are alike.

    Parameters
    ----------
    ordered : array of shape (n,)
        Residuals in increasing order.
    below : array of shape (n,), optional
        Shares of all up to each; they are equal otherwise.
    bins : int
        Of a histogram whose bins hold equally many residuals; at most 64.
    rounding : float
        What shares are known but for.
    narrowest : float
        Width of a bin, at least, over the distance between the quartiles.

    Examples
    --------
    >>> knots, values = best_score(np.arange(8.0) ** 2, None, 4, 1e-10, 1e-9)
    >>> knots.tolist(), values.round(3).tolist()
    ([0.0, 16.0], [-0.8, 0.114])
    """
    n = at_least_one("the number of residuals", ordered.size)
    if not 1 <= bins <= _MOST_BINS:
        raise ValueError(f"bins must be from 1 to {_MOST_BINS}; got {bins}")
    knots, values = np.empty(bins + 1), np.empty(bins + 1)
    shares = None if below is None else read("below", below, F64, (n,))
    law = read("ordered", ordered, F64, (n,)), shares, n, bins, rounding, narrowest
    found = int(_best_score(*law, address("knots", knots), address("values", values)))
    return knots[:found], values[:found]
