"""One pass of projected SGD (equation sgd_defn) over one block of rows.

Passes work on w in the units of the data and see centred features z = x − centre; ``gain`` is the inverse square of
each column's scale, so that a step of size α in scaled coordinates is w −= α · slope · gain · z. Two short kernels serve the
common case of one output, one row a step and no constraint; ``general_pass`` serves everything. They are serial and
run without the GIL: threads run several at once. Weights are one number per row, or an empty array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.native.arrays import (
    CODE,
    COUNT,
    CSR,
    F64,
    I64,
    NUMBER,
    POINTER,
    REALS,
    address,
    at_least_one,
    check,
    declare_for,
    function_for,
    optional,
    read,
    written,
)

Array = NDArray[Any]

_DENSE = (POINTER, COUNT, COUNT)
_SPARSE = (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT)
_ROWS = (POINTER, POINTER, POINTER, COUNT)
_STATE = (POINTER, POINTER, POINTER, POINTER)
_LOSS = (CODE, NUMBER, CODE, NUMBER)
_STEPS = (POINTER, COUNT)
_LIMITS = (COUNT, NUMBER, NUMBER, CODE, NUMBER, NUMBER)
_dense_pass = declare_for(REALS, "dense_pass", *_DENSE, *_ROWS, POINTER, POINTER, *_STATE, *_STEPS, *_LOSS)
_csr_pass = declare_for(CSR, "csr_pass", *_SPARSE, *_ROWS, POINTER, *_STATE, *_STEPS, *_LOSS)
_csr_pass_many = declare_for(
    CSR, "csr_pass_many", *_SPARSE, *_ROWS, POINTER, *_STATE, COUNT, *_STEPS, *_LOSS, POINTER
)
_csr_penalised_pass = declare_for(
    CSR, "csr_penalised_pass", *_SPARSE, *_ROWS, POINTER, *_STATE, COUNT, POINTER, *_LOSS, NUMBER, NUMBER, POINTER, POINTER
)  # fmt: skip
_GENERAL = (*_ROWS, POINTER, POINTER, *_STATE, COUNT, *_STEPS, *_LOSS, *_LIMITS)
_general_dense = declare_for(REALS, "general_pass", *_DENSE, *_GENERAL)
_general_csr = declare_for(CSR, "general_pass", *_SPARSE, *_GENERAL)


def dense_pass(
    X: Array, y: Array, weights: Array, rows: Array, centre: Array, gain: Array, w: Array, b: Array, mean_w: Array,
    mean_b: Array, steps: Array, code: int, c: float, implicit: bool, intercept: float,
) -> None:  # fmt: skip
    """Dense rows, one output: w and b move, mean_w and mean_b become the averages of their paths.

    Examples
    --------
    >>> w, b, mean_w, mean_b = np.zeros(1), np.zeros(1), np.empty(1), np.empty(1)
    >>> X, none = np.array([[2.0], [1.0]]), np.empty(0)
    >>> dense_pass(X, np.ones(2), none, np.array([0, 1]), np.zeros(1), np.ones(1), w, b, mean_w, mean_b,
    ...            np.array([0.5]), 0, 0.0, False, 0.0)
    >>> w.tolist(), mean_w.tolist()
    ([1.0], [1.0])
    """
    n, d = X.shape
    wide, one = (d,), (1,)
    check(
        function_for(_dense_pass, X.dtype)(
            address("X", X), n, d, *_rows(n, y, weights, rows),
            read("centre", centre, F64, wide), read("gain", gain, F64, wide),
            written("w", w, F64, wide), written("b", b, F64, one),
            written("mean_w", mean_w, F64, wide), written("mean_b", mean_b, F64, one),
            *_steps(steps), code, c, implicit, intercept,
        )
    )  # fmt: skip


def csr_pass(
    data: Array, indices: Array, indptr: Array, y: Array, weights: Array, rows: Array, gain: Array, w: Array, b: Array,
    mean_w: Array, mean_b: Array, steps: Array, code: int, c: float, implicit: bool, intercept: float,
) -> None:  # fmt: skip
    """Sparse rows, one output, no centring: work in proportion to the entries that are not zero."""
    n, wide, one = indptr.size - 1, gain.shape, (1,)
    check(
        function_for(_csr_pass, (data.dtype, indices.dtype))(
            *_entries(data, indices, indptr), n, gain.size, *_rows(n, y, weights, rows), read("gain", gain, F64, wide),
            written("w", w, F64, wide), written("b", b, F64, one),
            written("mean_w", mean_w, F64, wide), written("mean_b", mean_b, F64, one),
            *_steps(steps), code, c, implicit, intercept,
        )
    )  # fmt: skip


def csr_pass_many(
    data: Array, indices: Array, indptr: Array, y: Array, weights: Array, rows: Array, gain: Array, W: Array, b: Array,
    mean_W: Array, mean_b: Array, steps: Array, code: int, c: float, implicit: bool, intercept: float,
) -> None:  # fmt: skip
    """Sparse rows, several outputs, no centring; W and mean_W come transposed, features first."""
    n, d = indptr.size - 1, gain.size
    scratch = np.empty(2 * b.size)
    check(
        function_for(_csr_pass_many, (data.dtype, indices.dtype))(
            *_entries(data, indices, indptr), n, d, *_rows(n, y, weights, rows), read("gain", gain, F64, (d,)),
            *_outputs((d, b.size), W, b, mean_W, mean_b), *_steps(steps), code, c, implicit, intercept,
            address("scratch", scratch),
        )
    )  # fmt: skip


def csr_penalised_pass(
    data: Array, indices: Array, indptr: Array, y: Array, weights: Array, rows: Array, gain: Array, W: Array, b: Array,
    mean_W: Array, mean_b: Array, steps: Array, code: int, c: float, implicit: bool, intercept: float, l1: float,
    l2: float,
) -> None:  # fmt: skip
    """Sparse rows, penalties, one step size: a feature is shrunk when a row has it, for all steps since.

    W and mean_W come transposed, features first.
    """
    n, d = indptr.size - 1, gain.size
    scratch, seen = np.empty(2 * b.size), np.empty(d, dtype=np.int64)
    check(
        function_for(_csr_penalised_pass, (data.dtype, indices.dtype))(
            *_entries(data, indices, indptr), n, d, *_rows(n, y, weights, rows), read("gain", gain, F64, (d,)),
            *_outputs((d, b.size), W, b, mean_W, mean_b), _steps(steps)[0], code, c, implicit, intercept, l1, l2,
            address("scratch", scratch), address("seen", seen),
        )
    )  # fmt: skip


def general_pass(
    X: Array | tuple[Array, Array, Array], y: Array, weights: Array, rows: Array, centre: Array, gain: Array, W: Array,
    b: Array, mean_W: Array, mean_b: Array, steps: Array, code: int, c: float, implicit: bool, intercept: float,
    batch: int, l1: float, l2: float, set_code: int, first: float, second: float,
) -> None:  # fmt: skip
    """Any input (an array, or the three arrays of CSR), outputs, mini-batches, penalties and constraints."""
    d = gain.size
    source: tuple[Any, ...]
    if isinstance(X, tuple):
        function = function_for(_general_csr, (X[0].dtype, X[1].dtype))
        n = X[2].size - 1
        source = (*_entries(*X), n, d)
    else:
        function = function_for(_general_dense, X.dtype)
        n = len(X)
        source = (read("X", X, X.dtype, (n, d)), n, d)
    check(
        function(
            *source, *_rows(n, y, weights, rows), read("centre", centre, F64, (d,)), read("gain", gain, F64, (d,)),
            *_outputs((b.size, d), W, b, mean_W, mean_b), *_steps(steps), code, c, implicit, intercept,
            at_least_one("batch", batch), l1, l2, set_code, first, second,
        )
    )  # fmt: skip


def _rows(n: int, y: Array, weights: Array, rows: Array) -> tuple[Any, ...]:
    m = at_least_one("the number of rows", rows.size)
    return read("y", y, F64, (n,)), optional("weights", weights, n), read("rows", rows, I64, (m,)), m


def _steps(steps: Array) -> tuple[int, int]:
    size = at_least_one("the number of steps", steps.size)
    return read("steps", steps, F64, (size,)), size


def _entries(data: Array, indices: Array, indptr: Array) -> tuple[int, int, int, int]:
    at_least_one("the size of indptr", indptr.size)
    return (
        read("data", data, data.dtype, (data.size,)),
        read("indices", indices, indices.dtype, (data.size,)),
        read("indptr", indptr, indices.dtype, (indptr.size,)),
        data.size,
    )


def _outputs(shape: tuple[int, int], W: Array, b: Array, mean_W: Array, mean_b: Array) -> tuple[int, ...]:
    """Addresses of coefficients and intercepts of several outputs, and then the number of outputs."""
    return (
        written("W", W, F64, shape),
        written("b", b, F64, (b.size,)),
        written("mean_W", mean_W, F64, shape),
        written("mean_b", mean_b, F64, (b.size,)),
        at_least_one("the number of outputs", b.size),
    )
