"""Noisy convex minimisation, the controlled problem of sections 4.1 and 4.2.

y = ⟨w*, X⟩ + E with X ~ N(0, C), C diagonal, w* = (1, ..., 1), and centred noise E; the loss is
(⟨w, X⟩ − y)²/2. The risk is ⟨Σ(w − w*), w − w*⟩ + E E²/2 with Σ = C/2, so the excess risk is known exactly.
(The paper prints loss and gradient with opposite signs of E, which is the same in law if not mixed.)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tailproof.core import Array
from tailproof.core.lookup import lookup

W_STAR = 1.0  # every coordinate
FLAT = 2e-4  # variance of the flat coordinates of section 4.2: a diagonal of Σ of 1e-4
LEVELS = {
    "normal": {"low": 1.5, "med": 2.2, "high": 2.4},
    "lognormal": {"low": 1.25, "med": 1.75, "high": 1.9},
}


def _normal(random: np.random.Generator, b: float, n: int) -> Array:
    return b * random.standard_normal(n)


def _lognormal(random: np.random.Generator, b: float, n: int) -> Array:
    # Centred by its true mean: the sample mean would take away part of what makes it hard.
    return np.exp(b * random.standard_normal(n)) - math.exp(b * b / 2)


NOISES: dict[str, Callable[[np.random.Generator, float, int], Array]] = {
    "normal": _normal,
    "lognormal": _lognormal,
}


@dataclass(frozen=True)
class Problem:
    """A distribution, a sample size and where methods start.

    Parameters
    ----------
    n, d : int
        Rows and coordinates.
    noise : str
        A name in ``NOISES``.
    b : float
        Standard deviation of the Normal variable behind the noise.
    flat : bool
        The second half of the coordinates has variance ``FLAT`` instead of 1.
    reach : float
        c of the start ŵ₀ = w* + U[−c, c].
    divided : bool
        U is divided by √d, so that the distance of the start does not grow with d.

    Examples
    --------
    >>> problem = Problem(n=100, d=4, noise="normal", b=2.2, flat=True)
    >>> float(problem.excess_risk([2.0, 1.0, 1.0, 1.0])), float(problem.excess_risk([1.0, 1.0, 1.0, 2.0]))
    (0.5, 0.0001)
    """

    n: int
    d: int
    noise: str
    b: float
    flat: bool = False
    reach: float = 5.0
    divided: bool = False

    @property
    def covariance(self) -> Array:
        """Diagonal of C; twice that of Σ."""
        return np.where(self.flat & (np.arange(self.d) >= self.d - self.d // 2), FLAT, 1.0)

    def excess_risk(self, w: ArrayLike) -> Array:
        """R(w) − R(w*) = Σⱼ Cⱼ(wⱼ − w*ⱼ)²/2, for a point or for each of many."""
        return np.square(np.asarray(w) - W_STAR) @ self.covariance / 2

    @property
    def minimum(self) -> Array:
        """w*."""
        return np.full(self.d, W_STAR)

    def draw(self, seed: np.random.SeedSequence, starts: int = 1) -> Data:
        """Rows, targets and starts of one trial; the same seed gives the same ones."""
        rows, noise, start, orders = (np.random.SeedSequence(seed.entropy, spawn_key=(i,)) for i in range(4))
        X = np.random.default_rng(rows).standard_normal((self.n, self.d)) * np.sqrt(self.covariance)
        E = lookup("noise", self.noise, NOISES)(np.random.default_rng(noise), self.b, self.n)
        U = np.random.default_rng(start).uniform(-self.reach, self.reach, (starts, self.d))
        return Data(X, W_STAR * X.sum(axis=1) + E, W_STAR + U / (math.sqrt(self.d) ** self.divided), orders)


@dataclass(frozen=True, eq=False)
class Data:
    """One trial: what the methods see.

    Attributes
    ----------
    X, y : arrays of shape (n, d) and (n,)
    starts : array of shape (starts, d)
        Where methods begin: all of them at the first, or each sub-process at its own.
    orders : SeedSequence
        Of the orders in which rows are visited.
    """

    X: Array
    y: Array
    starts: Array
    orders: np.random.SeedSequence


def seed_of(*names: object) -> np.random.SeedSequence:
    """Return a seed that depends on the names alone.

    Examples
    --------
    >>> seed_of("sc-e1", "normal", 3).entropy == seed_of("sc-e1", "normal", 3).entropy
    True
    """
    text = "/".join(str(name) for name in names)
    return np.random.SeedSequence(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))


def noise_width(noise: str, b: float) -> float:
    """Inter-quartile range of the noise, which the paper keeps about equal between the two families.

    Examples
    --------
    >>> round(noise_width("normal", 2.2), 2), round(noise_width("lognormal", 1.75), 2)
    (2.97, 2.95)
    """
    quartile = 0.6744897501960817 * b
    widths = {"normal": 2 * quartile, "lognormal": 2 * math.sinh(quartile)}
    return lookup("noise", noise, widths)
