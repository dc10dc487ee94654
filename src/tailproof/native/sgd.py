"""One pass of projected SGD (equation sgd_defn) over one block of rows.

Passes work on w in the units of the data and see centred features z = x − centre; ``gain`` is the inverse
square of each column's scale, so that a step of size α in scaled coordinates is w −= α · slope · gain · z.
Short kernels serve the common cases; ``general_pass`` serves everything. They are serial and run without the
GIL: threads run several at once. Rows, targets and loss are the same for many passes, so they are checked
once, as a :class:`Problem`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
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
    address,
    address_of,
    at_least_one,
    check,
    declare_for,
    first_byte,
    function_for,
    optional,
    read,
    written,
)

Array = NDArray[Any]
Sparse = tuple[Array, Array, Array]  # data, indices and indptr of CSR

_ROWS = (POINTER, POINTER, COUNT)  # the problem, and which rows
_STATE = (POINTER, POINTER, POINTER, POINTER)
_STEPS = (POINTER, COUNT)
_LIMITS = (COUNT, NUMBER, NUMBER, CODE, NUMBER, NUMBER, CODE, NUMBER, POINTER)
_NOTHING = np.empty(0)
_MOMENTUM, _TRUNCATED = 4, 5  # rules with a memory, as in sgd.c
_single_passes = declare_for(REALS, "dense_pass", *_ROWS, *_STATE, *_STEPS, returns=NUMBER) | declare_for(
    CSR, "csr_pass", *_ROWS, *_STATE, *_STEPS, returns=NUMBER
)
_dense_passes = declare_for(
    REALS, "dense_passes", POINTER, POINTER, POINTER, COUNT, *_STATE, *_STEPS, POINTER
)
_csr_pass_many = declare_for(CSR, "csr_pass_many", *_ROWS, *_STATE, COUNT, *_STEPS, POINTER)
_PENALISED = (*_ROWS, *_STATE, COUNT, POINTER, NUMBER, NUMBER, POINTER, POINTER)
_csr_penalised_pass = declare_for(CSR, "csr_penalised_pass", *_PENALISED)
_general_pass = declare_for(REALS | CSR, "general_pass", *_ROWS, *_STATE, COUNT, *_STEPS, *_LIMITS)


class Objective(NamedTuple):
    """The loss by its code, the kind of step, and 1 or, without an intercept, 0."""

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


class _Record(ctypes.Structure):
    """``struct problem`` of sgd.h."""

    _fields_ = [
        *((name, POINTER) for name in ("values", "indices", "indptr")),
        *((name, COUNT) for name in ("n", "d", "entries")),
        *((name, POINTER) for name in ("y", "weights", "centre", "gain")),
        ("c", NUMBER),
        ("intercept", NUMBER),
        ("code", CODE),
        ("implicit", CODE),
    ]


class Problem:
    """What all passes over the same rows share: checked once, kept with the addresses that C is given.

    Parameters
    ----------
    X : array of shape (n, d), or data, indices and indptr of CSR
        Dense rows are centred, sparse ones are not.
    y, weights : arrays of shape (n,)
        Targets and weights of all rows; an empty array: no weights.
    centre, gain : arrays of shape (d,)
    objective : Objective

    Examples
    --------
    >>> X, y = np.array([[2.0], [1.0]]), np.ones(2)
    >>> problem = Problem(X, y, np.empty(0), np.zeros(1), np.ones(1), Objective(0, 0.0, False, 0.0))
    >>> at = Iterate(np.zeros(1), np.zeros(1), np.empty(1), np.empty(1))
    >>> dense_pass(problem, np.array([0, 1]), at, np.array([0.5]))
    4.0
    >>> at.w.tolist(), at.mean_w.tolist()
    ([1.0], [1.0])
    """

    def __init__(
        self, X: Array | Sparse, y: Array, weights: Array, centre: Array, gain: Array, objective: Objective
    ) -> None:
        self._given = X, y, weights, centre, gain, objective  # the addresses are good while these live
        self.d, self.sparse = gain.size, isinstance(X, tuple)
        source = _sparse(X) if isinstance(X, tuple) else _dense(X, self.d)
        self.kind: Any = source[0]
        self._single_pass = function_for(_single_passes, self.kind)
        values, indices, indptr, n, entries = source[1:]
        columns = read("centre", centre, F64, (self.d,)), read("gain", gain, F64, (self.d,))
        targets = read("y", y, F64, (n,)), optional("weights", weights, n)
        code, parameter, implicit, intercept = objective
        rows = values, indices, indptr, n, self.d, entries
        self._record = _Record(*rows, *targets, *columns, parameter, intercept, code, implicit)
        self.address = ctypes.addressof(self._record)

    def __reduce__(self) -> tuple[Any, ...]:
        # Addresses mean nothing in another process.
        return Problem, self._given

    def visit(self, rows: Array, at: Iterate, steps: Array, sparse: bool) -> float:
        """One pass for one output, by the kernel for rows of this kind, which must be the one expected."""
        if sparse is not self.sparse:
            function_for({}, self.kind)
        m, size = rows.size, steps.size
        if not (m and size):
            raise ValueError(f"there must be at least one row and one step; got {m} and {size}")
        found = self._usual(rows, *at, steps) or self._checked(rows, *at, steps)
        numbers, w, b, mean_w, mean_b, sizes = found
        farthest: float = self._single_pass(self.address, numbers, m, w, b, mean_w, mean_b, sizes, size)
        if farthest < 0:
            check(-int(farthest))
        return farthest

    def _usual(
        self, rows: Array, w: Array, b: Array, mean_w: Array, mean_b: Array, steps: Array
    ) -> list[int] | None:
        """Addresses of arrays that are as they should be; None where one of them must be looked at.

        Does what :func:`read` does, for all at once: calls of it are most of what a short pass costs.
        """
        if (
            rows.dtype is I64
            and w.dtype is b.dtype is mean_w.dtype is mean_b.dtype is steps.dtype is F64
            and w.shape == mean_w.shape == (self.d,)
            and b.shape == mean_b.shape == (1,)
            and rows.ndim == steps.ndim == 1
        ):
            try:
                found = [
                    address_of(first_byte(rows)),
                    address_of(first_byte(w)),
                    address_of(first_byte(b)),
                    address_of(first_byte(mean_w)),
                    address_of(first_byte(mean_b)),
                    address_of(first_byte(steps)),
                ]
            except (TypeError, ValueError):
                return None
            if not (found[0] | found[1] | found[2] | found[3] | found[4] | found[5]) & 7:
                return found
        return None

    def _checked(
        self, rows: Array, w: Array, b: Array, mean_w: Array, mean_b: Array, steps: Array
    ) -> list[int]:
        """The same for arrays that may only be read, and errors that name the array that does not fit."""
        return [
            read("rows", rows, I64, (rows.size,)),
            written("coefficients", w, F64, (self.d,)),
            written("intercepts", b, F64, (1,)),
            written("mean coefficients", mean_w, F64, (self.d,)),
            written("mean intercepts", mean_b, F64, (1,)),
            read("steps", steps, F64, (steps.size,)),
        ]


def dense_pass(problem: Problem, rows: Array, at: Iterate, steps: Array) -> float:
    """Dense rows, one output: w and b move, mean_w and mean_b become the averages of their paths.

    Parameters
    ----------
    problem : Problem
    rows : array of int
        Which rows come, in which order.
    at : Iterate
    steps : array
        Step sizes: one for all updates, or one for each.

    Returns
    -------
    float
        The largest gain·z² of a number in these rows: how far the farthest lies.
    """
    return problem.visit(rows, at, steps, sparse=False)


def dense_passes(problem: Problem, parts: Sequence[Array], at: Iterate, steps: Array) -> Array:
    """Dense rows, one output, several blocks: what :func:`dense_pass` does for each, in one call.

    Parameters
    ----------
    problem : Problem
    parts : sequence of arrays of int
        Rows of every block; one without rows stays as it is.
    at : Iterate
        Arrays of shape (k, d) and (k,).
    steps : array
        Step sizes: one for all updates, or one for each row, block after block.

    Returns
    -------
    array of shape (k,)
        How far the farthest number of each block lies; 0 for blocks without rows.
    """
    k, far = at_least_one("the number of blocks", len(parts)), np.zeros(len(parts))
    moving = _moving((k, problem.d), (k,), at)
    sizes = [part.size for part in parts]
    if steps.size not in (1, at_least_one("the number of rows", sum(sizes))):
        raise ValueError(f"steps must be one, or one for each of {sum(sizes)} rows; got {steps.size}")
    rows = (POINTER * k)(*[read("rows", part, I64, (part.size,)) for part in parts])
    where = rows, (COUNT * k)(*sizes), k
    function = function_for(_dense_passes, problem.kind)
    check(function(problem.address, *where, *moving, *_steps(steps), address("far", far)))
    return far


def csr_pass(problem: Problem, rows: Array, at: Iterate, steps: Array) -> float:
    """Sparse rows, one output, no centring: work in proportion to the entries that are not zero."""
    return problem.visit(rows, at, steps, sparse=True)


def csr_pass_many(problem: Problem, rows: Array, at: Iterate, steps: Array) -> None:
    """Sparse rows, several outputs, no centring; coefficients come transposed, features first."""
    function, outputs = function_for(_csr_pass_many, problem.kind), at.b.size
    moving, scratch = _moving((problem.d, outputs), (outputs,), at), np.empty(2 * outputs)
    given = *_rows(rows), *moving, outputs, *_steps(steps)
    check(function(problem.address, *given, address("scratch", scratch)))


def csr_penalised_pass(
    problem: Problem, rows: Array, at: Iterate, steps: Array, l1: float, l2: float
) -> None:
    """Sparse rows, penalties, one step size: a feature is shrunk when a row has it, for all steps since.

    Coefficients come transposed, features first.
    """
    function, outputs = function_for(_csr_penalised_pass, problem.kind), at.b.size
    moving = _moving((problem.d, outputs), (outputs,), at)
    scratch, seen = np.empty(2 * outputs), np.empty(problem.d, dtype=np.int64)
    given = *_rows(rows), *moving, outputs, _steps(steps)[0], l1, l2
    check(function(problem.address, *given, address("scratch", scratch), address("seen", seen)))


def general_pass(
    problem: Problem, rows: Array, at: Iterate, steps: Array, limits: Limits, memory: Array = _NOTHING
) -> None:
    """Any rows, outputs, mini-batches, penalties and constraints.

    ``memory`` has the numbers of a rule that takes more than one: for momentum the mean of the gradients so
    far, which goes on; for truncation level, smoothness, anchor and start.
    """
    function, outputs = function_for(_general_pass, problem.kind), at.b.size
    at_least_one("batch", limits.batch)
    moving = _moving((outputs, problem.d), (outputs,), at)
    kept = _memory(limits.rule, memory, outputs * (problem.d + 1))
    check(function(problem.address, *_rows(rows), *moving, outputs, *_steps(steps), *limits, kept))


def _memory(rule: int, memory: Array, parameters: int) -> int | None:
    if rule == _MOMENTUM:
        return written("memory", memory, F64, (parameters,))
    return read("memory", memory, F64, (2 + 2 * parameters,)) if rule == _TRUNCATED else None


def _rows(rows: Array) -> tuple[int, int]:
    m = at_least_one("the number of rows", rows.size)
    return read("rows", rows, I64, (m,)), m


def _steps(steps: Array) -> tuple[int, int]:
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


def _dense(X: Array, d: int) -> tuple[Any, ...]:
    """Kind of the rows, addresses of their numbers, how many rows and entries."""
    n = len(X)
    return X.dtype, read("X", X, X.dtype, (n, d)), None, None, n, 0


def _sparse(X: Sparse) -> tuple[Any, ...]:
    data, indices, indptr = X
    entries, n = data.size, at_least_one("the size of indptr", indptr.size) - 1
    return (
        (data.dtype, indices.dtype),
        read("data", data, data.dtype, (entries,)),
        read("indices", indices, indices.dtype, (entries,)),
        read("indptr", indptr, indices.dtype, (n + 1,)),
        n,
        entries,
    )
