"""Problems whose excess risk is known: what the statistical benchmarks share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIGMA = 1.75  # of the log-normal noise
LOGNORMAL_MEAN = float(np.exp(SIGMA**2 / 2))


@dataclass(frozen=True)
class Draw:
    """One data set, with what its excess risk needs."""

    X: np.ndarray
    y: np.ndarray
    covariance: np.ndarray
    scales: np.ndarray
    coef: np.ndarray

    def excess_squared(self, model) -> float:
        """E(⟨ŵ − w*, x⟩ + b̂)², twice the excess risk of the loss (p − y)²/2; the features have mean zero."""
        gap = np.ravel(model.coef_) * self.scales - self.coef
        return float(gap @ self.covariance @ gap + np.ravel(model.intercept_)[0] ** 2)


def covariance_of(features: str, d: int) -> np.ndarray:
    if features == "correlated":
        return 0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    if features == "ill-conditioned":
        basis = np.linalg.qr(np.random.default_rng(7).standard_normal((d, d)))[0]
        return (basis * np.logspace(-4, 0, d)) @ basis.T
    return np.eye(d)


def features_of(features: str, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows with mean zero, and their covariance."""
    if features == "heavy":
        return rng.standard_t(4, (n, d)), 2.0 * np.eye(d)
    covariance = covariance_of(features, d)
    return rng.standard_normal((n, d)) @ np.linalg.cholesky(covariance).T, covariance


def noise_of(noise: str, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if noise == "normal":
        return 2.2 * rng.standard_normal(len(X))
    drawn = rng.lognormal(0.0, SIGMA, len(X)) - LOGNORMAL_MEAN
    return drawn * np.exp(0.7 * X[:, 0] - 0.245) if noise == "depends on x" else drawn


def regression(features: str, noise: str, n: int, d: int, seed: int) -> Draw:
    """y = ⟨1, x⟩ + noise; "scaled" features have units from 1e-3 to 1e3."""
    rng = np.random.default_rng(seed)
    X, covariance = features_of(features, n, d, rng)
    y = X.sum(axis=1) + noise_of(noise, X, rng)
    scales = 10.0 ** np.linspace(-3, 3, d) if features == "scaled" else np.ones(d)
    return Draw(X * scales, y, covariance, scales, np.ones(d))
