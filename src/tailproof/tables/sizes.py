"""Columns whose numbers are far from those that a model learned from: other units, or a misread mark."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np

from tailproof.core import Array

Sizes = tuple[float, float, float]  # smallest, median and largest, without signs and zeros
FAR = 50.0  # times that a typical number may grow or shrink: marks move it by 1,000, percent by 100
_ENOUGH = 20  # numbers whose median says something even where some of them were seen before


def sizes_of(sample: Array) -> tuple[()] | Sizes:
    """Sizes of numbers; none where all are zero or missing.

    Examples
    --------
    >>> import numpy as np
    >>> sizes_of(np.array([-3.0, 0.0, 1.0, 5.0, np.nan])), sizes_of(np.zeros(3))
    ((1.0, 3.0, 5.0), ())
    """
    found = _without_signs(sample)
    if not found.size:
        return ()
    return float(found.min()), float(np.median(found)), float(found.max())


def times_as_large(sample: Array, learned: Sizes) -> float:
    """How many times as large numbers are as those learned, where that is far and no chance; else 1.

    A few numbers count only if they are all beyond what was learned.

    Examples
    --------
    >>> import numpy as np
    >>> learned = 800.0, 1500.0, 9000.0
    >>> [times_as_large(np.array(new), learned) for new in ([1.5, 3.0, 1.2], [1500.0], [1.2, 1.5, 900.0])]
    [0.001, 1.0, 1.0]
    """
    here, (low, typical, high) = sizes_of(sample), learned
    if not here:
        return 1.0
    times = here[1] / typical
    beyond = here[2] < low or here[0] > high
    far = not 1 / FAR <= times <= FAR
    return times if far and (beyond or _without_signs(sample).size >= _ENOUGH) else 1.0


def warn_of_sizes(columns: Iterable[tuple[str, tuple[float, ...], Array]]) -> None:
    """Warn of columns, given by name, sizes that were learned, and a sample, that are far from those."""
    for name, learned, sample in columns:
        if len(learned) != 3 or (times := times_as_large(sample, learned)) == 1:
            continue
        factor, than = (times, "larger") if times > 1 else (1 / times, "smaller")
        here, before = (f"{size:.4g}" for size in (times * learned[1], learned[1]))
        warnings.warn(
            f"numbers in column {name!r} are about {float(f'{factor:.2g}'):,.0f} times {than} here "
            f"(typically {here}) than when the model learned ({before}): check the unit and the decimal mark",
            stacklevel=3,
        )


def _without_signs(sample: Array) -> Array:
    return np.abs(sample[np.isfinite(sample) & (sample != 0)])
