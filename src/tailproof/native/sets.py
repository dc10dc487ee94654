"""Projections; codes are those of :mod:`tailproof.core.sets`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import CODE, COUNT, F64, NUMBER, POINTER, check, declare, written

_project = declare("project", CODE, NUMBER, NUMBER, POINTER, COUNT)


def project(code: int, first: float, second: float, w: NDArray[np.float64]) -> None:
    """Move w, in place, to the nearest point of the set with that code and those two numbers.

    Examples
    --------
    >>> w = np.array([3.0, 4.0])
    >>> project(2, -1.0, 1.0, w)
    >>> w.tolist()
    [1.0, 1.0]
    """
    check(_project(code, first, second, written("w", w, F64, (w.size,)), w.size))
