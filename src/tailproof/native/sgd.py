"""One pass of projected SGD (equation sgd_defn) over one block of rows.

Passes work on w in the units of the data and see centred features z = x − centre; ``gain`` is the inverse
square of each column's scale, so that a step of size α in scaled coordinates is w −= α · slope · gain · z.
Short kernels serve the common cases; ``general_pass`` serves everything. They are serial and run without the
GIL: threads run several at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    Function,
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
Sparse = tuple[Array, Array, Array]  # data, indices and indptr of CSR

_DENSE = (POINTER, COUNT, COUNT)
_SPARSE = (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT)
_ROWS = (POINTER, POINTER, POINTER, COUNT)
_STATE = (POINTER, POINTER, POINTER, POINTER)
_LOSS = (CODE, NUMBER, CODE, NUMBER)
_STEPS = (POINTER, COUNT)
_LIMITS = (COUNT, NUMBER, NUMBER, CODE, NUMBER, NUMBER, CODE, NUMBER)
_dense_pass = declare_for(REALS, "dense_pass", *_DENSE, *_ROWS, POINTER, POINTER, *_STATE, *_STEPS, *_LOSS)
_csr_pass = declare_for(CSR, "csr_pass", *_SPARSE, *_ROWS, POINTER, *_STATE, *_STEPS, *_LOSS)
_MANY = (*_SPARSE, *_ROWS, POINTER, *_STATE, COUNT)
_csr_pass_many = declare_for(CSR, "csr_pass_many", *_MANY, *_STEPS, *_LOSS, POINTER)
_csr_penalised_pass = declare_for(
    CSR, "csr_penalised_pass", *_MANY, POINTER, *_LOSS, NUMBER, NUMBER, POINTER, POINTER
)
_GENERAL = (*_ROWS, POINTER, POINTER, *_STATE, COUNT, *_STEPS, *_LOSS, *_LIMITS)
_general_dense = declare_for(REALS, "general_pass", *_DENSE, *_GENERAL)
_general_csr = declare_for(CSR, "general_pass", *_SPARSE, *_GENERAL)


class Visit(NamedTuple):
    """Targets and weights of all rows (an empty array: no weights), and which rows come in which order."""

    y: Array
    weights: Array
    rows: Array


class Objective(NamedTuple):
    """The loss by its code, and the kind of step; step sizes are one for all updates, or one for each."""

    steps: Array
    code: int
    parameter: float
    implicit: bool
    intercept: float


class Iterate(NamedTuple):
    """Coefficients and intercepts, which move, and the averages of their paths, which are written."""

    w: Array
    b: Array
    mean_w: Array
    mean_b: Array


class Limits(NamedTuple):
    """Size of a mini-batch, penalties, the constraint set by its code and numbers, and the rule by its."""

    batch: int
    l1: float
    l2: float
    set_code: int
    first: float
    second: float
    rule: int = 0
    strength: float = 0.0


def dense_pass(X: Array, visit: Visit, centre: Array, gain: Array, at: Iterate, objective: Objective) -> None:
    """Dense rows, one output: w and b move, mean_w and mean_b become the averages of their paths.

    Examples
    --------
    >>> at = Iterate(np.zeros(1), np.zeros(1), np.empty(1), np.empty(1))
    >>> visit = Visit(np.ones(2), np.empty(0), np.array([0, 1]))
    >>> squared = Objective(np.array([0.5]), 0, 0.0, False, 0.0)
    >>> dense_pass(np.array([[2.0], [1.0]]), visit, np.zeros(1), np.ones(1), at, squared)
    >>> at.w.tolist(), at.mean_w.tolist()
    ([1.0], [1.0])
    """
    n, d = X.shape
    check(
        function_for(_dense_pass, X.dtype)(
            address("X", X), n, d, *_rows(n, visit),
            read("centre", centre, F64, (d,)), read("gain", gain, F64, (d,)),
            *_moving((d,), (1,), at), *_steps(objective), *objective[1:],
        )
    )  # fmt: skip


def csr_pass(X: Sparse, visit: Visit, gain: Array, at: Iterate, objective: Objective) -> None:
    """Sparse rows, one output, no centring: work in proportion to the entries that are not zero."""
    function, source, n = _sparse(_csr_pass, X, gain)
    moving = _moving(gain.shape, (1,), at)
    check(function(*source, *_rows(n, visit), _gain(gain), *moving, *_steps(objective), *objective[1:]))


def csr_pass_many(X: Sparse, visit: Visit, gain: Array, at: Iterate, objective: Objective) -> None:
    """Sparse rows, several outputs, no centring; coefficients come transposed, features first."""
    function, source, n = _sparse(_csr_pass_many, X, gain)
    outputs, scratch = at.b.size, np.empty(2 * at.b.size)
    check(
        function(
            *source, *_rows(n, visit), _gain(gain), *_moving((gain.size, outputs), (outputs,), at), outputs,
            *_steps(objective), *objective[1:], address("scratch", scratch),
        )
    )  # fmt: skip


def csr_penalised_pass(
    X: Sparse, visit: Visit, gain: Array, at: Iterate, objective: Objective, l1: float, l2: float
) -> None:
    """Sparse rows, penalties, one step size: a feature is shrunk when a row has it, for all steps since.

    Coefficients come transposed, features first.
    """
    function, source, n = _sparse(_csr_penalised_pass, X, gain)
    outputs, scratch, seen = at.b.size, np.empty(2 * at.b.size), np.empty(gain.size, dtype=np.int64)
    check(
        function(
            *source, *_rows(n, visit), _gain(gain), *_moving((gain.size, outputs), (outputs,), at), outputs,
            _steps(objective)[0], *objective[1:], l1, l2, address("scratch", scratch), address("seen", seen),
        )
    )  # fmt: skip


def general_pass(
    X: Array | Sparse,
    visit: Visit,
    centre: Array,
    gain: Array,
    at: Iterate,
    objective: Objective,
    limits: Limits,
) -> None:
    """Any rows, outputs, mini-batches, penalties and constraints."""
    d, outputs = gain.size, at.b.size
    at_least_one("batch", limits.batch)
    if isinstance(X, tuple):
        function, source, n = _sparse(_general_csr, X, gain)
    else:
        n = len(X)
        function, source = function_for(_general_dense, X.dtype), (read("X", X, X.dtype, (n, d)), n, d)
    check(
        function(
            *source, *_rows(n, visit), read("centre", centre, F64, (d,)), _gain(gain),
            *_moving((outputs, d), (outputs,), at), outputs, *_steps(objective), *objective[1:], *limits,
        )
    )  # fmt: skip


def _rows(n: int, visit: Visit) -> tuple[Any, ...]:
    y, weights, rows = visit
    m = at_least_one("the number of rows", rows.size)
    return read("y", y, F64, (n,)), optional("weights", weights, n), read("rows", rows, I64, (m,)), m


def _gain(gain: Array) -> int:
    return read("gain", gain, F64, (gain.size,))


def _steps(objective: Objective) -> tuple[int, int]:
    steps = objective.steps
    size = at_least_one("the number of steps", steps.size)
    return read("steps", steps, F64, (size,)), size


def _moving(shape: tuple[int, ...], outputs: tuple[int], at: Iterate) -> tuple[int, int, int, int]:
    at_least_one("the number of outputs", outputs[0])
    return (
        written("coefficients", at.w, F64, shape),
        written("intercepts", at.b, F64, outputs),
        written("mean coefficients", at.mean_w, F64, shape),
        written("mean intercepts", at.mean_b, F64, outputs),
    )


def _sparse(table: dict[Any, Function], X: Sparse, gain: Array) -> tuple[Function, tuple[int, ...], int]:
    """Return the function for these types, the addresses of the three arrays with their sizes, and n."""
    data, indices, indptr = X
    entries, n = data.size, at_least_one("the size of indptr", indptr.size) - 1
    source = (
        read("data", data, data.dtype, (entries,)),
        read("indices", indices, indices.dtype, (entries,)),
        read("indptr", indptr, indices.dtype, (n + 1,)),
    )
    return function_for(table, (data.dtype, indices.dtype)), (*source, entries, n, gain.size), n
