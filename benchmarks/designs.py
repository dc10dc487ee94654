"""A pool of regression designs with a known linear mean: noise laws × rows × columns × shape of X.

The seed of a draw is a hash of the design's name and the number of the draw. Draws below ``TUNING`` are for
tuning a rule; ``REPORTED`` were drawn when it was frozen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

TUNING = 25
REPORTED = range(1_250, 1_300)  # those below have been looked at
_MOMENT_ROWS = 20_000  # for the second moments of X, which turn coefficients into excess risk

Array = np.ndarray


def _contaminated(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 20.0, 1.0)


def _claims(rng: np.random.Generator, n: int) -> Array:
    """Nine zeros for each log-normal claim."""
    return np.where(rng.random(n) < 0.1, rng.lognormal(0.0, 1.2, n), 0.0) - 0.1 * np.exp(0.72)


LAWS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "Laplace": lambda rng, n: rng.laplace(size=n),
    "t(3)": lambda rng, n: rng.standard_t(3, n),
    "t(2.2)": lambda rng, n: rng.standard_t(2.2, n),
    "log-normal(1.2)": lambda rng, n: rng.lognormal(0.0, 1.2, n) - np.exp(0.72),
    "log-normal(1.75)": lambda rng, n: rng.lognormal(0.0, 1.75, n) - np.exp(1.75**2 / 2),
    "Pareto(2.1)": lambda rng, n: rng.pareto(2.1, n) - 1 / 1.1,
    "5% contaminated": _contaminated,
    "claims": _claims,
}
# Scale of the noise as a function of the first column; the mean of the noise stays zero.
SCALES: dict[str, Callable[[Array], Array]] = {
    "": np.ones_like,
    " × exp(0.7x)": lambda x: np.exp(np.clip(0.7 * x, -5, 5)),
    " × (1 + |x|)": lambda x: 1 + np.abs(x),
}


def _student(u: Array, v: float) -> tuple[Array, float]:
    return (v + 1) * u / (v + u**2), (v + 1) / (v + 3)


def _lognormal(u: Array, s: float) -> tuple[Array, float]:
    x = u + np.exp(s**2 / 2)
    return (1 + np.log(x) / s**2) / x, float(np.exp(2 * s**2) * (1 + 1 / s**2))


def _mixture(u: Array) -> tuple[Array, float]:
    def score(x: Array) -> tuple[Array, Array]:
        near, far = 0.95 * np.exp(-(x**2) / 2), 0.05 / 20 * np.exp(-(x**2) / 800)
        return (near + far / 400) * x / (near + far), near + far

    grid = np.linspace(-120, 120, 200_001)
    on_grid, density = score(grid)
    return score(u)[0], float(np.sum(on_grid**2 * density) / np.sum(density))


# (−log f)′ of a law and its mean square, the information about a shift; the others have an edge or an atom,
# which tells slopes exactly for large n.
INFORMATION: dict[str, Callable[[Array], tuple[Array, float]]] = {
    "normal": lambda u: (u, 1.0),
    "Laplace": lambda u: (np.sign(u), 1.0),
    "t(3)": lambda u: _student(u, 3.0),
    "t(2.2)": lambda u: _student(u, 2.2),
    "log-normal(1.2)": lambda u: _lognormal(u, 1.2),
    "log-normal(1.75)": lambda u: _lognormal(u, 1.75),
    "5% contaminated": _mixture,
}


def _correlated(rng: np.random.Generator, n: int, d: int) -> Array:
    shared = rng.standard_normal((n, 1))
    return np.sqrt(0.9) * shared + np.sqrt(0.1) * rng.standard_normal((n, d))


def _dummies(rng: np.random.Generator, n: int, d: int) -> Array:
    """Indicators of categories of unequal frequency, and one column of numbers in front."""
    share = 1.0 / np.arange(2, d + 2)
    category = rng.choice(d + 1, n, p=np.append(1.0, share) / (1 + share.sum()))
    X = (category[:, None] == np.arange(1, d + 1)).astype(float)
    X[:, 0] = rng.standard_normal(n)
    return X


SHAPES: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "normal X": lambda rng, n, d: rng.standard_normal((n, d)),
    "correlated X": _correlated,
    "t(4) X": lambda rng, n, d: rng.standard_t(4, (n, d)),
    "log-normal X": lambda rng, n, d: rng.lognormal(0.0, 0.75, (n, d)),
    "dummies": _dummies,
}


@dataclass(frozen=True)
class Design:
    """y = Σx + noise."""

    law: str
    scale: str
    n: int
    d: int
    shape: str

    @property
    def name(self) -> str:
        return f"{self.law}{self.scale}, {self.n:,} × {self.d}, {self.shape}"

    @property
    def normal(self) -> bool:
        """Whether least squares is the best there is."""
        return self.law == "normal" and self.scale == ""

    def draw(self, number: int) -> tuple[Array, Array]:
        rng = self._random(number)
        X = SHAPES[self.shape](rng, self.n, self.d)
        return X, X.sum(axis=1) + SCALES[self.scale](X[:, 0]) * LAWS[self.law](rng, self.n)

    @cached_property
    def moments(self) -> Array:
        """E zz' for z = (x, 1)."""
        X = SHAPES[self.shape](self._random(-1), _MOMENT_ROWS, self.d)
        Z = np.column_stack([X, np.ones(len(X))])
        return Z.T @ Z / len(Z)

    def excess(self, coef: Array, intercept: Array) -> Array:
        """E(prediction − mean)² of one model, or of one a row."""
        gap = np.concatenate([np.asarray(coef) - 1.0, np.asarray(intercept)[..., None]], axis=-1)
        return np.einsum("...i,ij,...j->...", gap, self.moments, gap)

    def known_noise(self, number: int) -> tuple[Array, Array, Array]:
        """Coefficients by a step of maximum likelihood from the truth, their residuals, and sizes of noise.

        Whoever knows the law of the noise and its size at every row can do no better for large n.
        """
        X, y = self.draw(number)
        size = SCALES[self.scale](X[:, 0])
        coef = np.ones(self.d)
        if self.law in INFORMATION:
            score, information = INFORMATION[self.law]((y - X.sum(axis=1)) / size)
            Z = np.column_stack([X, np.ones(self.n)]) / size[:, None]
            coef = coef + np.linalg.solve(information * Z.T @ Z, Z.T @ score)[:-1]
        return coef, y - X @ coef, size

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(f"{self.name}, draw {number}".encode()))


def _pool() -> list[Design]:
    laws = [(law, "") for law in LAWS]
    laws += [("log-normal(1.2)", " × exp(0.7x)"), ("t(3)", " × (1 + |x|)"), ("normal", " × exp(0.7x)")]
    laws += [("log-normal(1.75)", " × (1 + |x|)")]
    sizes = [(200, 5), (500, 1), (1_000, 10), (2_000, 3), (5_000, 20)]
    shapes = list(SHAPES)
    pool = [
        Design(law, scale, n, d, shapes[(i + j) % len(shapes)] if d > 2 else "normal X")
        for i, (law, scale) in enumerate(laws)
        for j, (n, d) in enumerate(sizes)
    ]
    more = [
        ("log-normal(1.2)", 100_000, 20),
        ("log-normal(1.75)", 50_000, 10),
        ("log-normal(1.75)", 5_000, 1),
        ("5% contaminated", 1_000, 10),
        ("normal", 20_000, 20),
        ("log-normal(1.75)", 20_000, 20),
        ("log-normal(1.75)", 1_000, 60),
        ("t(3)", 500, 40),
        ("normal", 300, 30),
    ]
    return [
        *pool,
        *(
            design
            for design in (Design(law, "", n, d, "normal X") for law, n, d in more)
            if design not in pool
        ),
    ]


POOL = _pool()
