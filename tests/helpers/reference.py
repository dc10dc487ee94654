"""Losses, projections and Algorithms 1 and 5 written out slowly: what the fast code is compared with."""

import math

import numpy as np

PARAMETERS = {"huber": 1.35, "pinball": 0.5, "tweedie": 1.5}
REGRESSION = ["squared_error", "huber", "absolute_error", "pinball", "poisson", "gamma", "tweedie"]
BINARY = ["log_loss", "hinge", "squared_hinge", "modified_huber"]


def exp(x):
    return math.exp(x) if x < 709.7 else math.inf


def value(name, p, y, c=None):
    """ℓ(p, y), from its definition."""
    c = PARAMETERS.get(name) if c is None else c
    margin = p * y
    formulas = {
        "squared_error": lambda: (p - y) ** 2 / 2,
        "huber": lambda: (p - y) ** 2 / 2 if abs(p - y) <= c else c * abs(p - y) - c * c / 2,
        "absolute_error": lambda: abs(p - y),
        "pinball": lambda: max(c * (y - p), (c - 1) * (y - p)),
        "poisson": lambda: exp(p) - y * p,
        "gamma": lambda: p + y * exp(-p),
        "tweedie": lambda: exp((2 - c) * p) / (2 - c) + y * exp(-(c - 1) * p) / (c - 1),
        "log_loss": lambda: max(-margin, 0.0) + math.log1p(math.exp(-abs(margin))),
        "hinge": lambda: max(0.0, 1 - margin),
        "squared_hinge": lambda: max(0.0, 1 - margin) ** 2,
        "modified_huber": lambda: max(0.0, 1 - margin) ** 2 if margin >= -1 else -4 * margin,
    }
    return formulas[name]()


def slope(name, p, y, c=None):
    """∂ℓ/∂p, by hand from the definition; 0 at the kink of absolute errors, the left slope of hinge's."""
    c = PARAMETERS.get(name) if c is None else c
    margin = p * y
    formulas = {
        "squared_error": lambda: p - y,
        "huber": lambda: p - y if abs(p - y) <= c else math.copysign(c, p - y),
        "absolute_error": lambda: float(p > y) - float(p < y),
        "pinball": lambda: (1 - c) * (p > y) - c * (p < y),
        "poisson": lambda: exp(p) - y,
        "gamma": lambda: 1 - y * exp(-p),
        "tweedie": lambda: exp((2 - c) * p) - y * exp(-(c - 1) * p),
        "log_loss": lambda: -y / (1 + exp(margin)),
        "hinge": lambda: -y if margin < 1 else 0.0,
        "squared_hinge": lambda: -2 * y * max(0.0, 1 - margin),
        "modified_huber": lambda: -4 * y if margin < -1 else -2 * y * max(0.0, 1 - margin),
    }
    return formulas[name]()


def proximal_slope(name, p, y, r, c=None):
    """The s with s ∈ ∂ℓ(p − r s): bisection for the q at which q + r ∂ℓ(q) passes p."""
    steep = slope(name, p, y, c)
    low, high = min(p, p - r * steep), max(p, p - r * steep)
    low, high = (low if math.isfinite(low) else -800.0), (high if math.isfinite(high) else 800.0)
    for _ in range(2000):
        middle = low / 2 + high / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if middle + r * slope(name, middle, y, c) > p else (middle, high)
    return (p - (low / 2 + high / 2)) / r


def softmax_slopes(p, label):
    powers = np.exp(p - np.max(p))
    found = powers / powers.sum()
    found[label] -= 1
    return found


def slopes(name, p, y, r, implicit):
    """Slope of the loss in every output; r[0] is the length α‖x‖² of a proximal step."""
    if name == "softmax":
        return softmax_slopes(p, int(y)) / (1 + r / 2 if implicit else 1)
    targets = [y] if len(p) == 1 else [1.0 if o == int(y) else -1.0 for o in range(len(p))]
    if implicit and r > 0:
        return np.array([proximal_slope(name, q, t, r) for q, t in zip(p, targets, strict=True)])
    return np.array([slope(name, q, t) for q, t in zip(p, targets, strict=True)])


def shift_to(total, w):
    """max(w − τ, 0) with the τ that makes its sum the total."""
    low, high = w.min() - total, w.max()
    for _ in range(200):
        tau = low / 2 + high / 2
        low, high = (tau, high) if np.maximum(w - tau, 0).sum() > total else (low, tau)
    return np.maximum(w - tau, 0)


PROJECTIONS = {
    "none": lambda w: w,
    "ball": lambda w, radius: w * min(1.0, radius / max(np.linalg.norm(w), 1e-300)),
    "box": np.clip,
    "l1_ball": lambda w, radius: w if np.abs(w).sum() <= radius else np.sign(w) * shift_to(radius, np.abs(w)),
    "simplex": lambda w, total: shift_to(total, w),
}


def sgd(
    X, y, orders, name, alphas, start, *, implicit=False, average=False, batch=1, l1=0.0, l2=0.0,
    constraint=("none",), weights=None, intercept=True,
):  # fmt: skip
    """Projected SGD over one block, one line a formula; orders are the rows of each pass."""
    project = PROJECTIONS[constraint[0]]
    W, b = np.array(start[0], float), np.array(start[1], float)
    W = project(W.ravel(), *constraint[1:]).reshape(W.shape)
    weights = np.ones(len(y)) if weights is None else weights
    t = 0
    for order in orders:
        path = []
        for first in range(0, len(order), batch):
            rows, alpha = order[first : first + batch], alphas(t)
            gradient, gradient_b = np.zeros_like(W), np.zeros_like(b)
            for i in rows:
                r = alpha * weights[i] * (X[i] @ X[i] + intercept)
                s = slopes(name, W @ X[i] + b, y[i], r, implicit)
                gradient += weights[i] / len(rows) * np.outer(s, X[i])
                gradient_b += weights[i] / len(rows) * s * intercept
            W = W - alpha * gradient
            W = np.sign(W) * np.maximum(np.abs(W) - alpha * l1, 0) / (1 + alpha * l2)
            W = project(W.ravel(), *constraint[1:]).reshape(W.shape)
            b = b - alpha * gradient_b
            path.append((W, b))
            t += 1
    if average:
        return np.mean([w for w, _ in path], axis=0), np.mean([b for _, b in path], axis=0)
    return W, b


def smallest_ball(points):
    """The point whose distance to its own nearest majority is least."""
    radii = [sorted(np.linalg.norm(points - p, axis=1))[len(points) // 2] for p in points]
    return points[int(np.argmin(radii))]


def geometric_median(points):
    """Weiszfeld's iteration, for as long as it moves."""
    found = points.mean(axis=0)
    for _ in range(200_000):
        inverse = 1 / np.linalg.norm(points - found, axis=1)
        following = inverse @ points / inverse.sum()
        if np.linalg.norm(following - found) <= 1e-16 * np.linalg.norm(found):
            break
        found = following
    return found


def trimmed_mean(points):
    """Each point counted 1,000 times, so that two fifths are a whole number."""
    many = np.sort(np.repeat(points, 1_000, axis=0), axis=0)
    cut = 2 * len(many) // 5
    return many[cut : len(many) - cut].mean(axis=0)


def mean_around_median(points):
    k = len(points)
    columns = []
    for values in points.T:
        away = np.abs(values - np.median(values))
        columns.append(values[np.argsort(away, kind="stable")[: k // 2 + 1]].mean())
    return np.array(columns)


def ball_mean(points):
    away = np.linalg.norm(points - smallest_ball(points), axis=1)
    return points[np.argsort(away)[: len(points) // 2 + 1]].mean(axis=0)


def krum(points):
    """Each point counted twice, so that half of them are a whole number of points."""
    twice = np.repeat(points, 2, axis=0)
    scores = [np.sum(np.sort(np.linalg.norm(twice - p, axis=1))[: len(points)] ** 2) for p in points]
    return points[int(np.argmin(scores))]


MERGES = {
    "trimmed_mean": trimmed_mean,
    "mean_around_median": mean_around_median,
    "ball_mean": ball_mean,
    "krum": krum,
    "coordinate_median": lambda points: np.median(points, axis=0),
    "centroid": lambda points: np.mean(points, axis=0),
    "smallest_ball": smallest_ball,
    "geometric_median": geometric_median,
}
