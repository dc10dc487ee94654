"""Sparse rows made alike by every version of SciPy."""

from scipy import sparse


def scattered(shape, density, rng):
    """CSR rows with normal numbers at random places; a place that is met twice holds the sum."""
    cells = round(density * shape[0] * shape[1])
    places = rng.integers(shape[0], size=cells), rng.integers(shape[1], size=cells)
    return sparse.coo_array((rng.standard_normal(cells), places), shape=shape).tocsr()
