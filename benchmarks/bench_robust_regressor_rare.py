"""RobustRegressor where claims in few rows, among far smaller noise, tell all there is of the mean."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LinearRegression

import tailproof as tp
from run import Ratio

DRAWS = range(1_000, 1_025)
SHARES = (
    (1_000, 0.02),
    (5_000, 0.003),
    (5_000, 0.01),
    (5_000, 0.02),
    (20_000, 0.003),
    (20_000, 0.01),
    (20_000, 0.02),
)
SLOPE, SIZE = 0.4, 1_000.0  # of logarithms of chance and size along two columns; of claims, in those of noise
SPREAD = {
    "log-normal": lambda rng, n: rng.lognormal(-0.5, 1.0, n),
    "normal": lambda rng, n: rng.normal(1.0, 0.1, n),
}


@dataclass(frozen=True)
class Claims:
    """y = Σx + noise + claims, likelier along the first column of X and larger along the second."""

    law: str
    n: int
    d: int
    rate: float

    @property
    def name(self) -> str:
        return f"{self.law} claims in {self.rate:.1%} of {self.n:,} × {self.d}"

    def draw(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([number, self.n, self.d, round(1e4 * self.rate)])
        X = rng.standard_normal((self.n, self.d))
        likely, large = np.exp(SLOPE * X[:, :2] - SLOPE**2 / 2).T
        claims = (rng.random(self.n) < self.rate * likely) * large * SPREAD[self.law](rng, self.n)
        return X, X.sum(axis=1) + rng.standard_normal(self.n) + SIZE * claims

    def excess(self, model: LinearRegression | tp.RobustRegressor) -> float:
        """Of risk, over the best linear mean: exp(sx − s²/2) is 1 + sx and what no x is correlated with."""
        mean = SIZE * self.rate
        best = 1.0 + mean * SLOPE * (np.arange(self.d) < 2)
        return float(np.sum((model.coef_ - best) ** 2) + (model.intercept_ - mean) ** 2)


def run() -> list[Ratio]:
    problems = [Claims(law, n, d, rate) for law, (n, rate), d in product(SPREAD, SHARES, (3, 10))]
    return Parallel(n_jobs=-1)(delayed(_compared)(problem) for problem in problems)


def _compared(problem: Claims) -> Ratio:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # claims beyond a gap are named, draw after draw
        risks = np.array([_risks(problem, number) for number in DRAWS])
    median, high = (np.quantile(risks[:, 0], q) / np.quantile(risks[:, 1], q) for q in (0.5, 0.95))
    return Ratio(f"{problem.name}: median", float(median), 2.0, detail=f"95% {high:.2f} of LinearRegression")


def _risks(problem: Claims, number: int) -> tuple[float, float]:
    X, y = problem.draw(number)
    ours = tp.RobustRegressor(random_state=number).fit(X, y)
    return problem.excess(ours), problem.excess(LinearRegression().fit(X, y))
