"""Rows to choose by, where there are many: the same ones in memory and in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.numerics.quantiles import weighted_median
from tailproof.estimators.inputs import entropy
from tailproof.estimators.robust_regressor.tuning import Tuning

_FEW, _MOST = 2**32 - 6, 2**32 - 4  # apart from the keys of blocks, of the dealing and of the shuffle
_BETWEEN = 4  # times as many rows as the few choose before the most do


def rows_to_compare(columns: int, levels_alone: bool, tuning: Tuning) -> tuple[int, int]:
    """How many rows choose at first, where all rows judge the choice afterwards, and at most."""
    most = max(tuning.compared_rows, tuning.compared_rows_per_column * columns)
    few = max(tuning.judged_rows, tuning.compared_rows_per_column * columns)
    return (min(few, most) if levels_alone and columns <= tuning.gram_columns else most), most


def steps_of(few: int, most: int) -> tuple[int, ...]:
    """How many rows choose, step by step as long as they miss what matters, before the most do.

    Examples
    --------
    >>> steps_of(5_000, 100_000), steps_of(5_000, 10_000), steps_of(5_000, 5_000)
    ((5000, 20000), (5000,), ())
    """
    return tuple(count for count in (few, _BETWEEN * few) if count < most)


def few_rows(n: int, counts: Sequence[int], seed: np.random.SeedSequence) -> Iterator[NDArray[np.int64]]:
    """So many of n rows at random, in their order, for each step; all, if there are no more."""
    for step, count in enumerate(counts):
        own = (_FEW, step) if step else (_FEW,)  # as when there was one step
        draw = np.random.default_rng(_apart(seed, *own))
        yield np.arange(n) if n <= count else np.sort(draw.choice(n, count, replace=False))


def most_rows(n: int, count: int, seed: np.random.SeedSequence) -> NDArray[np.int64]:
    """The same for many of them: those of least priority, which pieces find out for themselves."""
    if n <= count:
        return np.arange(n)
    least = np.argpartition(priorities(np.arange(n), sample_key(seed)), count)[:count]
    return np.sort(least)


def sample_key(seed: np.random.SeedSequence) -> int:
    """For the priorities of rows."""
    return int(_apart(seed, _MOST).generate_state(1, np.uint64)[0])


def priorities(numbers: NDArray[np.int64], key: int) -> Array:
    """Numbers in [0, 1) that look random, each a hash of a row's number and the key (SplitMix64).

    Examples
    --------
    >>> found = priorities(np.arange(100_000), 7)
    >>> bool(abs(found.mean() - 0.5) < 0.01 and np.array_equal(found[5:8], priorities(np.arange(5, 8), 7)))
    True
    """
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53)


def is_surprising(low: float, high: float, sample: Array, tuning: Tuning) -> bool:
    """Whether targets from low to high lie so much farther than a few that these missed what matters."""
    middle = float(weighted_median(sample))
    reach = max(float(sample.max()) - middle, middle - float(sample.min()))
    return max(high - middle, middle - low) > tuning.surprise * reach


def _apart(seed: np.random.SeedSequence, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy(seed), spawn_key=key)
