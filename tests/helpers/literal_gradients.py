"""The equations of robust gradient descent, literally: every row's gradient and loss, then the estimate."""

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import erfc, expit

from tailproof.core.losses import LOSSES
from tailproof.core.scaling import unscaled
from tailproof.estimators.baselines.row_gradients import RowGradients

DELTA = 0.01
GEMAN = 1 - np.sqrt(np.pi * np.e / 2) * erfc(1 / np.sqrt(2))
PAPER = {"fit_intercept": False, "scale_features": False, "shuffle": False, "tol": 0.0}


def gradients_and_losses(loss, X, y, w):
    p = X @ w
    if loss == "squared_error":
        return (p - y)[:, None] * X, (p - y) ** 2 / 2
    return (-y * expit(-y * p))[:, None] * X, np.logaddexp(0, -y * p)


def literal_mean(gradients, losses, k):
    return sum(gradients) / len(gradients)


def literal_mom(gradients, losses, k):
    means = np.array([part.mean(axis=0) for part in np.array_split(gradients, k)])
    size = np.abs(means).max() or 1.0
    return size * literal_geometric_median(means / size)


def literal_geometric_median(points):
    """Return the point that is optimal, the middle of a line, or else where Weiszfeld's iteration ends."""
    middle = points.mean(axis=0)
    _, lengths, directions = np.linalg.svd(points - middle)
    if len(lengths) == 1 or lengths[1] <= 1e-9 * lengths[0]:
        return middle + np.median((points - middle) @ directions[0]) * directions[0]
    for point in points:
        away = np.linalg.norm(points - point, axis=1)
        same = away <= 1e-12
        force = ((points[~same] - point) / away[~same, None]).sum(axis=0)
        if np.linalg.norm(force) <= same.sum() * (1 + 1e-9):
            return point
    v = middle
    for _ in range(20_000):
        pull = 1 / np.maximum(np.linalg.norm(points - v, axis=1), 1e-200)
        v, before = pull @ points / pull.sum(), v
        if np.linalg.norm(v - before) <= 1e-15:
            break
    return v


def literal_lecue(gradients, losses, k, middle="lower"):
    risks = [np.mean(part) for part in np.array_split(losses, k)]
    chosen = np.argsort(risks, kind="stable")[(k - 1) // 2 if middle == "lower" else k // 2]
    return np.array_split(gradients, k)[chosen].mean(axis=0)


def literal_m(gradients, losses, k):
    return np.array([literal_m_coordinate(u) for u in gradients.T])


def literal_m_coordinate(u):
    centred = u - u.mean()
    sd = np.sqrt(np.mean(centred**2))
    if sd <= 1e-14 * np.abs(u).max():
        return u.mean()
    s = np.sqrt(len(u) / np.log(1 / DELTA)) * literal_scale(centred, sd)
    return brentq(
        lambda theta: np.sum(2 * np.arctan(np.tanh((u - theta) / s / 2))), u.min(), u.max(), xtol=1e-13 * s
    )


def literal_scale(centred, sd):
    """Geman's M-scale; the standard deviation where there is none."""

    def level(s):
        return np.mean(centred**2 / (centred**2 + s**2)) - GEMAN

    if level(1e-9 * sd) <= 0:
        return sd
    return brentq(level, 1e-9 * sd, 10 * sd, xtol=1e-14 * sd)


LITERAL = {
    "mean": literal_mean,
    "geometric_median_of_means": literal_mom,
    "m_estimate": literal_m,
    "median_block": literal_lecue,
}


def sample_of(loss, X, y, k, weights=None, **more):
    blocks = [slice(part[0], part[-1] + 1) for part in np.array_split(np.arange(len(X)), k)]
    weights = np.empty(0) if weights is None else weights
    return RowGradients(X, y, weights, LOSSES[loss], 1, unscaled(X.shape[1]), False, blocks, **more)


@st.composite
def problems(draw, most=60):
    """Rows with normal or heavy tails, with or without ties, and a place to take the gradient at."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, d = draw(st.integers(8, most)), draw(st.integers(1, 5))
    X = rng.standard_t(1.5, (n, d)) if draw(st.booleans()) else rng.standard_normal((n, d))
    if draw(st.booleans()):
        X = np.round(X)
    loss = draw(st.sampled_from(["squared_error", "log_loss"]))
    noise = rng.lognormal(0, 1.75, n)
    y = X.sum(axis=1) + noise if loss == "squared_error" else rng.choice([-1.0, 1.0], n)
    return loss, X, y, rng.standard_normal(d), draw(st.integers(1, 8))


def near_tie(losses, k):
    """Two blocks with the same mean loss up to rounding: either may be the median."""
    risks = np.sort([np.mean(part) for part in np.array_split(losses, k)])
    return np.any(np.diff(risks) <= 1e-12 * risks[1:])


def close(found, expected, gradients):
    assert np.abs(found - expected).max() <= 1e-8 * np.abs(gradients).max(initial=1e-300)


def regression(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + rng.lognormal(0, 1.75, n)
