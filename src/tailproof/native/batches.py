"""Columns to rows of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import BOOL, COUNT, F64, POINTER, address, check, declare, read, written

Array = NDArray[Any]

_fill_rows = declare("fill_rows", POINTER, COUNT, COUNT, POINTER, POINTER)


def fill_rows(columns: list[Array], X: Array, good: NDArray[np.bool_]) -> None:
    """Write columns into the rows of a C-ordered X; ``good`` becomes false for rows that are not finite.

    Examples
    --------
    >>> X, good = np.empty((2, 2)), np.ones(2, dtype=bool)
    >>> fill_rows([np.array([1.0, 2.0]), np.array([3.0, np.nan])], X, good)
    >>> X[0].tolist(), good.tolist()
    ([1.0, 3.0], [True, False])
    """
    n, d = X.shape
    if len(columns) != d:
        raise ValueError(f"columns must be as many as X has; got {len(columns)} and {d}")
    pointers = np.array([read("column", column, F64, (n,)) for column in columns], dtype=np.uintp)
    X_address, good_address = written("X", X, F64, (n, d)), written("good", good, BOOL, (n,))
    check(_fill_rows(address("pointers", pointers), n, d, X_address, good_address))
