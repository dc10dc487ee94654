"""Two populations: rows beyond a gap that no tail has, in the targets or in a feature.

A heavy tail is continuous: however far its largest values lie, others lie between them and the rest. In a
tail of index α the j-th largest of n values is g times the next with probability g^{−jα}. A gap that such a
tail has in one draw of 200 at most, and that is wide beside, separates two populations: errors of measurement
where they are few, and something to be looked at where they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.numerics.quantiles import first_spread, weighted_median
from tailproof.core.rare_events import least_told_apart, told_apart
from tailproof.core.scaling import far_columns, robust_columns, sample_rows
from tailproof.native.rows import places_outside

Rows = NDArray[np.intp]
_HILL_SHARE, _HILL_LEAST, _HILL_MOST = 0.05, 10, 200  # values of a tail, for its index
_COVARIANCE_DAMPING = 1e-9  # of the mean eigenvalue: collinear columns
_ROUNDING = 1e-6  # of a target, where there is no noise: what damping does to a prediction
_MOST_NAMED = 10  # rows in a sentence
LEAST_ROWS = 20  # below, a gap says nothing
_SURVEYED = 20_000  # values for a first look, where there are more


class TwoPopulationsWarning(UserWarning):
    """Some rows are not of the population of the others: errors, or something that one model does not fit."""


@dataclass(frozen=True)
class Limits:
    """What counts as another population, and when it is taken for errors.

    Attributes
    ----------
    scales : float
        Robust scales from the centre, at least.
    gap : float
        Times as far as the next value, at least.
    log_gap : float
        The same for targets of a log link, whose mean multiplies.
    error : float
        Probability that honest columns, however many, show such a gap by chance, if their tails are as heavy
        as the values below the gap say.
    feature_share, target_share : float
        Of the rows, at most, beyond the gap of one feature or of the targets, if they are taken for errors:
        5% and 1%, with room for chance. One row always may be.
    errors : float
        Of the rows, at most, taken for errors in all.
    agreement : float
        Standard errors of its prediction by the other rows that a target may be off, if a row is to be real.
    rows, rows_per_column : int
        For that prediction.
    """

    scales: float = 100.0
    gap: float = 30.0
    log_gap: float = 1_000.0
    error: float = 0.005
    feature_share: float = 0.06
    target_share: float = 0.015
    errors: float = 0.45
    agreement: float = 4.0
    rows: int = 2_000
    rows_per_column: int = 20


LIMITS = Limits()


@dataclass(frozen=True)
class Gap:
    """Rows beyond a gap, how many times as far as all others they lie, and in what."""

    rows: Rows
    times: float
    what: str


@dataclass(frozen=True)
class Populations:
    """What was found in n rows.

    Attributes
    ----------
    n : int
    gaps : tuple of Gap
        Without rows that agree with the others.
    errors : array of int
        Rows to leave out.
    """

    n: int
    gaps: tuple[Gap, ...] = ()
    errors: Rows = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    @property
    def rows(self) -> Rows:
        """All rows beyond a gap."""
        return union([gap.rows for gap in self.gaps])

    @property
    def far_features(self) -> Rows:
        """Rows beyond a gap of a feature."""
        return union([gap.rows for gap in self.gaps if gap.what != "targets"])

    def sentence(self, left_out: bool | None = None, numbers: Rows | None = None) -> str | None:
        """What there is to say; None without a gap.

        Parameters
        ----------
        left_out : bool, optional
            Whether the errors were; without it nothing is said about that.
        numbers : array of int, optional
            What the caller calls each row; none, where rows have no names.
        """
        if not self.gaps:
            return None
        called = np.sort(self.rows if numbers is None or not numbers.size else numbers[self.rows])
        what = " and ".join(dict.fromkeys(gap.what for gap in self.gaps))
        times = min(gap.times for gap in self.gaps)
        done = f", and {self.errors.size:,} were left out as errors" if left_out else ", and all were kept"
        where = f"; rows {named(called)}" if numbers is None or numbers.size else ""
        return (
            f"two populations: {self.rows.size:,} of {self.n:,} rows have {what} at least {times:.3g} times "
            f"as far out as any other row{'' if left_out is None else done}{where}"
        )


def named(rows: Rows) -> str:
    """The first few of some rows.

    Examples
    --------
    >>> named(np.arange(12))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    first = ", ".join(str(row) for row in rows[:_MOST_NAMED])
    return first + (f" and {rows.size - _MOST_NAMED} more" if rows.size > _MOST_NAMED else "")


def two_populations(
    X: Any,
    y: Array | None = None,
    *,
    linear: bool = True,
    far: NDArray[np.intp] | None = None,
    limits: Limits = LIMITS,
) -> Populations:
    """Rows whose target or one of whose features lies beyond a gap, and which of them are errors.

    A row whose target is what the other rows predict for it is real. A column that is constant apart from
    such rows is a rare indicator.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    y : array of shape (n,), optional
        Targets; none for labels.
    linear : bool
        Whether the mean of the targets is linear in X; else nothing is predicted from the other rows.
    far : array of int, optional
        Columns with far values, where they are known.
    limits : Limits

    Returns
    -------
    Populations

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_t(3, (1_000, 2))
    >>> X[[3, 7], 1] = 1e6
    >>> two_populations(X).errors.tolist()
    [3, 7]
    >>> two_populations(X, X.sum(axis=1)).errors.tolist()
    []
    """
    n, d = X.shape
    if n < LEAST_ROWS:
        return Populations(n)
    gaps = [] if y is None else _gaps_of(y, "targets", 1, limits.gap if linear else limits.log_gap, limits)
    for j in far_columns(X, limits.scales) if far is None else far:
        gaps += _gaps_of(column_of(X, j), f"feature {j}", d, limits.gap, limits)
    suspects = union([gap.rows for gap in gaps])
    if suspects.size and y is not None and linear:
        real = suspects[_agree(X, y, suspects, limits)]
        gaps = [Gap(np.setdiff1d(gap.rows, real), gap.times, gap.what) for gap in gaps]
        gaps = [gap for gap in gaps if gap.rows.size]
    by_chance = [gap for gap in gaps if gap.what != "targets" or not _depend_on_features(X, gap.rows, limits)]
    return Populations(n, tuple(gaps), _errors(by_chance, n, limits))


def unexplained(residuals: Array, y: Array, limits: Limits = LIMITS) -> Populations:
    """Rows whose residuals lie beyond a gap: a model of all others does not hold for them.

    Where most targets are equal, only the residuals of the others are looked at: a claim among zeros is no
    exception.

    Examples
    --------
    >>> y = np.random.default_rng(0).standard_normal(500)
    >>> y[[4, 9]] = 500.0
    >>> unexplained(y - 0.1, y).rows.tolist()
    [4, 9]
    """
    if _surely_without_gap(residuals, limits.gap, limits):
        return Populations(residuals.size)
    rows = untied(y)
    if rows.size < LEAST_ROWS:
        return Populations(residuals.size)
    gaps = _gaps_of(residuals, "residuals", 1, limits.gap, limits, rows)
    return Populations(residuals.size, tuple(gaps))


def untied(values: Array) -> Rows:
    """Rows without the value that most rows have; all, where no value is so common.

    Examples
    --------
    >>> untied(np.array([0.0, 3.0, 0.0, 0.0])).tolist(), untied(np.array([1.0, 2.0])).tolist()
    ([1], [0, 1])
    """
    # A value that most rows have is the median of many of them as well.
    few = values[:: 1 + values.size // _SURVEYED]
    common = values == weighted_median(few)
    return np.flatnonzero(~common) if np.count_nonzero(common) * 2 > values.size else np.arange(values.size)


def _errors(gaps: Sequence[Gap], n: int, limits: Limits) -> Rows:
    few = [
        gap.rows
        for gap in gaps
        if gap.rows.size
        <= max(1, (limits.target_share if gap.what == "targets" else limits.feature_share) * n)
    ]
    errors = union(few)
    return errors if errors.size <= max(1, limits.errors * n) else errors[:0]


def union(parts: Sequence[Rows]) -> Rows:
    """Rows in any of some parts, in order."""
    return np.unique(np.concatenate(parts)) if len(parts) else np.empty(0, dtype=np.intp)


def _gaps_of(
    values: Array, what: str, columns: int, least: float, limits: Limits, counted: Rows | None = None
) -> list[Gap]:
    beyond = beyond_a_gap(values, columns, least, limits, counted)
    return [] if beyond is None else [Gap(np.sort(beyond[0]), beyond[1], what)]


def beyond_a_gap(
    values: Array,
    columns: int = 1,
    least: float = LIMITS.gap,
    limits: Limits = LIMITS,
    counted: Rows | None = None,
) -> tuple[Rows, float] | None:
    """Values beyond the innermost gap, and how many times as far as the next the nearest of them lies.

    Where most values are equal, only the others are looked at (``counted``, where they are known): claims
    among zeros are no gap.

    Examples
    --------
    >>> values = np.random.default_rng(0).standard_normal(1_000)
    >>> values[5] = 1e3
    >>> beyond_a_gap(values)[0].tolist(), beyond_a_gap(np.random.default_rng(0).standard_cauchy(1_000))
    ([5], None)
    """
    if _surely_without_gap(values, least, limits):
        return None
    counted = untied(values) if counted is None else counted
    if counted.size < LEAST_ROWS:
        return None
    seen = values if counted.size == values.size else values[counted]
    with np.errstate(over="ignore", invalid="ignore"):
        # From where most values are: counts of two are far from counts of one, but not from the zeros.
        away = np.abs(np.asarray(seen, dtype=np.float64) - float(weighted_median(values)))
    scale = first_spread(away)
    if not (np.isfinite(away).all() and scale > 0 and away.max() > limits.scales * scale):
        return None
    order = _largest_first(away, int(np.count_nonzero(away > limits.scales * scale)) + _HILL_MOST + 1)
    far = away[order[: (away.size - 1) // 2 + 1]]
    wide = np.flatnonzero((far[:-1] > limits.scales * scale) & (far[:-1] > least * far[1:])) + 1
    for place in wide[::-1]:
        index = tail_index(away[order[place:]], hill_count(away.size - place))
        times = float(far[place - 1] / max(far[place], 1e-300))
        if np.log(times) > np.log(columns / limits.error) / (place * index):
            return counted[order[:place]], times
    return None


def _surely_without_gap(values: Array, least: float, limits: Limits) -> bool:
    """Whether the far values lie so close to each other that no gap is among them, by a centre of a sample.

    Its scale is taken for up to twice the true one, and its centre for at most one scale away: that leaves at
    least half of a gap.
    """
    first = values[:: 1 + values.size // _SURVEYED]
    centre = float(weighted_median(first))
    scale = float(weighted_median(np.abs(first - centre)))
    if not 0 < scale < np.inf:
        return False
    limit = 0.25 * limits.scales * scale
    plain = np.ascontiguousarray(values, dtype=np.float64)
    far = np.abs(values[places_outside(plain, centre - limit, centre + limit)] - centre)
    if not np.isfinite(far).all():
        return False
    chain = np.append(np.sort(far)[::-1], _largest_near(first, centre, limit))
    if chain.size > 1 and not chain[-2] < 0.5 * least * chain[-1]:
        chain[-1] = _largest_near(values, centre, limit)  # which may be more than that of a sample
    return bool(np.all(chain[:-1] < 0.5 * least * chain[1:]))


def _largest_near(values: Array, centre: float, limit: float) -> float:
    """The largest distance from a centre that is not beyond a limit."""
    away = np.abs(values - centre)
    return float(np.max(away, where=away <= limit, initial=0.0))


def _largest_first(values: Array, count: int) -> Rows:
    """Places of so many of the largest values, in falling order, equal ones in their own."""
    if count < values.size:
        places = np.sort(np.argpartition(values, values.size - count)[values.size - count :])
    else:
        places = np.arange(values.size)
    return places[np.argsort(-values[places], kind="stable")]


def hill_count(size: int) -> int:
    """How many values of a tail its index is taken from."""
    return int(min(max(_HILL_SHARE * size, _HILL_LEAST), _HILL_MOST, size - 1))


def tail_index(ordered: Array, count: int | None = None) -> float:
    """A lower limit of Hill's index of a tail in falling order, from its first values."""
    count = hill_count(ordered.size) if count is None else count
    if count < 5 or ordered[count] <= 0:
        return 1.0
    excess = float(np.mean(np.log(ordered[:count] / ordered[count])))
    return (1.0 - 2.0 / np.sqrt(count)) / max(excess, 1e-3)


def column_of(X: Any, j: int) -> Array:
    """A column as an array of numbers."""
    return np.ravel(X[:, [j]].toarray()) if sparse.issparse(X) else np.asarray(X[:, j], dtype=np.float64)


def _agree(X: Any, y: Array, suspects: Rows, limits: Limits) -> NDArray[np.bool_]:
    """Whether the target of each suspect is what the other rows predict, within the error of that."""
    others = np.delete(np.arange(X.shape[0]), suspects)
    wanted = max(limits.rows, limits.rows_per_column * X.shape[1])
    others = others[:: max(1, others.size // wanted)]
    if others.size < 2 * (X.shape[1] + 1):
        return np.zeros(suspects.size, dtype=bool)
    scaled = _scaling(X, others)
    with np.errstate(over="ignore", invalid="ignore"):
        Z, far = scaled(others), scaled(suspects)
        gram = Z.T @ Z
        gram += _COVARIANCE_DAMPING * np.trace(gram) / len(gram) * np.eye(len(gram))
        coef = np.linalg.solve(gram, Z.T @ y[others])
        spread = np.sum((y[others] - Z @ coef) ** 2) / max(others.size - Z.shape[1], 1)
        leverage = np.einsum("ij,ji->i", far, np.linalg.solve(gram, far.T))
        off = np.abs(y[suspects] - far @ coef)
        error = limits.agreement * np.sqrt(spread * (1.0 + leverage))
        return np.asarray(off <= error + _ROUNDING * np.abs(y[suspects]))


def _depend_on_features(X: Any, rows: Rows, limits: Limits) -> bool:
    """Whether features tell which rows these are, so that no error of measurement made them what they are."""
    if rows.size < least_told_apart(X.shape[1]):
        return False
    others = np.arange(0, X.shape[0], max(1, X.shape[0] // limits.rows))
    scaled = _scaling(X, others)
    return told_apart(scaled(rows)[:, :-1], scaled(others)[:, :-1], limits.error)


def _scaling(X: Any, others: Rows) -> Callable[[Rows], Array]:
    """What scales rows by the others, with a constant beside them."""
    columns = robust_columns(sample_rows(X, [others]))

    def scaled(rows: Rows) -> Array:
        part = X[rows].toarray() if sparse.issparse(X) else np.asarray(X[rows], dtype=np.float64)
        return np.column_stack([(part - columns.centre) / columns.scale, np.ones(rows.size)])

    return scaled
