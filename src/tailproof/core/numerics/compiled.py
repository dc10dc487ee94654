"""How functions are compiled.

numba hands options down: a function that does not state one takes it from whichever caller compiles it first,
and keeps it on disk. Here all are stated, so that the last bits of a sum do not depend on what ran before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

# Sums may be reordered to vectorise; NaN and inf must survive, since they are how bad input is noticed.
REORDERED = frozenset({"reassoc", "contract", "nsz"})


def compiled(
    rounding: frozenset[str] = frozenset(), part: bool = False, divides_by_zero: bool = False, **more: Any
) -> Callable[..., Any]:
    """Compile without the GIL, and keep the result on disk.

    Parameters
    ----------
    rounding : set of str
        Freedoms of LLVM's fast-math, none by default.
    part : bool
        Make the function a part of every caller. Whatever has a rounding of its own and is called by compiled
        functions must be one: otherwise every caller holds a copy, each with its own order of summation, and
        which copy runs differs between the process that compiled them and those that load them from disk.
    divides_by_zero : bool
        Leave out the test for a zero divisor, which keeps loops from vectorising.
    **more
        Further options of ``numba.njit``.

    Returns
    -------
    callable
        The decorator.

    Examples
    --------
    >>> from tailproof.core.numerics.compiled import compiled
    >>> @compiled(cache=False)
    ... def double(x):
    ...     return 2 * x
    >>> double(4.0)
    8.0
    """
    model = "numpy" if divides_by_zero else "python"
    stated = {"fastmath": set(rounding) or False, "forceinline": part, "error_model": model}
    return njit(**{"nogil": True, "cache": True, **stated, **more})
