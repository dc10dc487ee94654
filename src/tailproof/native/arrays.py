"""Arrays to addresses: what a C function is given has the type, the shape and the layout that it expects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tailproof.native.library import LIBRARY

Array = NDArray[Any]
Function = Callable[..., Any]

F32, F64, I32, I64, BOOL = (np.dtype(kind) for kind in ("f4", "f8", "i4", "i8", "?"))
REALS = {F32: "f32", F64: "f64"}
INDICES = {I32: "i32", I64: "i64"}
CSR = {(real, index): f"{REALS[real]}_{INDICES[index]}" for real in REALS for index in INDICES}

# Kinds of arguments of C functions.
POINTER, COUNT, NUMBER, CODE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int

first_byte: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer
address_of = ctypes.addressof
_ERRORS = {
    1: IndexError("rows must be numbers of rows, from 0 to n - 1"),
    2: IndexError("the sparse matrix has entries outside of its shape: build it anew"),
    3: IndexError("targets must be class numbers, from 0 to the number of classes - 1"),
    4: MemoryError("there is no memory for the working arrays of a compiled function"),
    6: ArithmeticError("a system of equations is singular"),
    5: ValueError("ends of blocks must not decrease, and the last one must be the number of rows"),
}


def declare(name: str, *kinds: Any, returns: Any = CODE) -> Function:
    """Return the C function of that name, with the kinds of its arguments; it returns a status."""
    function = getattr(LIBRARY, name)
    function.argtypes, function.restype = kinds, returns
    return function


def declare_for(types: dict[Any, str], name: str, *kinds: Any, returns: Any = CODE) -> dict[Any, Function]:
    """Return the C function for every type of row."""
    return {key: declare(f"{name}_{suffix}", *kinds, returns=returns) for key, suffix in types.items()}


def check(status: int) -> None:
    """Raise what the status of a C function means."""
    if status:
        error = _ERRORS[status]
        raise type(error)(*error.args)


def read(
    name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...], writable: bool = False
) -> int:
    """Address of an array that is only read, unless it must be writable.

    Does what :func:`address` does without calling it: this is most of what a call costs.
    """
    if (array.dtype is not dtype and array.dtype != dtype) or array.shape != shape:
        _refuse(name, array, dtype, shape)
    try:
        pointer = address_of(first_byte(array))
    except (TypeError, ValueError):
        pointer = _address_of_others(name, array, writable)
    if pointer & 7 and pointer % array.itemsize:
        _refuse_unaligned(name)
    return pointer


def written(name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Address of an array that is written to."""
    return read(name, array, dtype, shape, writable=True)


def optional(name: str, array: Array, size: int) -> int | None:
    """Address of float64 numbers that are only read, or none where the array is empty."""
    return read(name, array, F64, (size,)) if array.size else None


def address(name: str, array: Array, writable: bool = False) -> int:
    """Address of the first number of a C-contiguous array; 0 where it is empty."""
    try:
        # Much faster than array.ctypes.data, and refuses what is not contiguous or not writable.
        pointer = address_of(first_byte(array))
    except (TypeError, ValueError):
        pointer = _address_of_others(name, array, writable)
    if pointer & 7 and pointer % array.itemsize:
        _refuse_unaligned(name)
    return pointer


def _address_of_others(name: str, array: Array, writable: bool) -> int:
    """Address of an array that is empty or must not be written to; everything else is refused."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array; got {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous: pass np.ascontiguousarray({name})")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name} must be writable: pass a copy")
    return array.ctypes.data if array.size else 0


def function_for(table: dict[Any, Function], key: Any) -> Function:
    """Return the C function for rows of that type."""
    try:
        return table[key]
    except KeyError:
        raise TypeError(
            f"rows must be float32 or float64, and indices of sparse rows int32 or int64; got {key}"
        ) from None


def at_least_one(name: str, count: int) -> int:
    """Return the count, which must be positive."""
    if count < 1:
        raise ValueError(f"{name} must be at least 1; got {count}")
    return count


def _refuse(name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NoReturn:
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}; got {array.dtype}")
    raise ValueError(f"{name} must have shape {shape}; got {array.shape}")


def _refuse_unaligned(name: str) -> NoReturn:
    raise ValueError(f"{name} must be aligned in memory: pass a copy")
