"""What the paper proves, as numbers: block counts, constants, risk bounds, and rows needed.

The constants follow the corrected derivation: at least a fraction 1 − δ₀ of the candidates is good, and by
Hoeffding's inequality k = 8 log(1/δ) blocks give a γ-majority of good ones with probability 1 − δ whenever
γ + δ₀ = 1/4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tailproof.core.lookup import Registry, lookup
from tailproof.core.theory_checks import (
    TooFewRowsError,
    check_conditioning,
    check_majority,
    check_not_negative,
    check_numerator,
    check_problem,
    dimension,
    require,
)

__all__ = [
    "VALIDATION_CONSTANTS",
    "TooFewRowsError",
    "blocks_for",
    "bound_dc",
    "bound_dc_smooth",
    "bound_rv",
    "bound_sgd",
    "bound_sgd_average",
    "bound_sgd_smooth",
    "guarantee",
    "m_delta",
    "m_star",
    "majority_probability",
    "merge_constant",
    "risk_constant",
    "samples_for",
]

# c of Lemma "valid_basic_prop": the error is at most c·sqrt((1 + log(1/δ)) σ²/n) with probability 1 − δ.
VALIDATION_CONSTANTS = {
    "catoni": 2.0,
    "median_of_means": 2 * math.sqrt(2) * math.e,
    "truncated_mean": 9 * math.sqrt(2),
}


_BLOCKS: Registry[Callable[[float], float]] = Registry(
    "method",
    {
        "dc": lambda delta: -8 * math.log(delta),
        "rv": lambda delta: math.log(2 * math.ceil(-math.log(delta))) - math.log(delta),
    },
)


def blocks_for(delta: float, method: str = "dc") -> int:
    """Number of blocks k(δ): ⌈8 log(1/δ)⌉ for "dc", ⌈log(2⌈log(1/δ)⌉/δ)⌉ for "rv" (Theorems 1-3).

    Examples
    --------
    >>> blocks_for(0.09, "dc"), blocks_for(0.05, "rv")
    (20, 5)
    """
    _check_delta(delta)
    return max(1, math.ceil(_BLOCKS[method](delta)))


def majority_probability(k: int, failure: float, gamma: float = 0.0) -> float:
    """Least probability that more than k(1/2 + γ) of k candidates are good (Lemma "boost_basic_prop").

    1 − exp(−2k(γ + δ₀ − 1/2)²), where each candidate is good with probability 1 − δ₀, independently of the
    others, and 0 ≤ γ < 1/2 − δ₀.

    Examples
    --------
    >>> round(majority_probability(24, failure=0.25), 4)
    0.9502
    """
    check_majority(k, failure, gamma)
    return -math.expm1(-2 * k * (gamma + failure - 0.5) ** 2)


def guarantee(
    method: str, k: int, n: int, delta: float, *, merge: str = "geometric_median", sgd: bool = False
) -> str:
    """Which statement of the paper covers a fit with k blocks of n rows, and what else it asks for.

    Parameters
    ----------
    method : {"dc", "rv"}
    k, n : int
        Blocks; rows in all.
    delta : float
    merge : str
        Of "dc": the name in ``MERGES``.
    sgd : bool
        Whether the candidates come from SGD, so that a theorem may hold beyond the lemma for any learner.

    Examples
    --------
    >>> guarantee("dc", 24, 10_000, 0.05)
    'Lemma boost_conf_sc: k = 24 ≥ ⌈8 log(1/δ)⌉ = 24; it asks for a strongly convex risk'
    """
    least = blocks_for(delta, method)
    if method == "rv":
        name = "Theorem 3" if sgd else "Lemma boost_conf_unbounded"
        if delta > 1 / 3 or k < least or n < 2 * k:
            return f"none: {name} needs δ ≤ 1/3, k ≥ {least} and n ≥ 2k; here k = {k}, n = {n}"
        beyond = "Theorem 3 also asks for a smooth risk, averaging and its own steps"
        beyond = beyond if sgd else "it asks for losses of finite variance"
        return f"Lemma boost_conf_unbounded: k = {k} ≥ {least}, n ≥ 2k; {beyond}"
    if merge in ("centroid", "krum"):
        return f"none: the {merge} has no guarantee"
    if k < least:
        needs = "Theorems 1 and 2 need" if sgd else "Lemma boost_conf_sc needs"
        return f"none: {needs} k ≥ {least} at δ = {delta:g}, here k = {k}"
    beyond = "Theorems 1 and 2 also ask for a strongly convex risk and their own steps"
    beyond = f"n ≥ k; {beyond}" if sgd else "it asks for a strongly convex risk"
    return f"Lemma boost_conf_sc: k = {k} ≥ ⌈8 log(1/δ)⌉ = {least}{', ' if sgd else '; '}{beyond}"


def merge_constant(merge: str, gamma: float = 0.0, d: int | None = None) -> float:
    """c_γ of Lemma "merge_requirement": ‖û − u‖ ≤ c_γ Δ(u; γ).

    1 + 1/(2γ) for the geometric median, 3 for the smallest ball, √d for the coordinate median (smaller
    than printed in the paper), infinite for the centroid, which no majority can hold, and for Krum, whose
    constant grows with √k. A mean of points in a ball adds the diameter of the ball: 5 for the ball mean, 3√d
    for the mean around the median. The trimmed mean stays among the others, √d, while fewer points are bad
    than it trims, γ ≥ 0.1.

    Examples
    --------
    >>> merge_constant("geometric_median", gamma=1 / 6), merge_constant("smallest_ball")
    (4.0, 3.0)
    """
    if not 0 <= gamma < 0.5:
        raise ValueError(f"gamma must lie in [0, 1/2); got {gamma}")
    constants: dict[str, Callable[[], float]] = {
        "geometric_median": lambda: 1 + 1 / (2 * gamma) if gamma > 0 else math.inf,
        "smallest_ball": lambda: 3.0,
        "coordinate_median": lambda: math.sqrt(dimension(d)),
        "trimmed_mean": lambda: math.sqrt(dimension(d)) if gamma >= 0.1 else math.inf,
        "mean_around_median": lambda: 3 * math.sqrt(dimension(d)),
        "ball_mean": lambda: 5.0,
        "krum": lambda: math.inf,
        "centroid": lambda: math.inf,
    }
    return lookup("merge", merge, constants)()


def risk_constant(merge: str, d: int | None = None) -> float:
    """Return c of Theorems 1 and 2: 8 c_γ²/δ₀ with γ + δ₀ = 1/4, at the better γ of 0 and 1/6.

    1536 for the geometric median (γ = 1/6), 288 for the smallest ball, 32 d for the coordinate median
    (both γ = 0; the paper prints the looser 1536 d), infinite for the centroid.

    Examples
    --------
    >>> round(risk_constant("geometric_median")), risk_constant("smallest_ball")
    (1536, 288.0)
    """
    return min(8 * merge_constant(merge, gamma, d) ** 2 / (0.25 - gamma) for gamma in (0.0, 1 / 6))


def bound_dc(
    n: int,
    delta: float,
    *,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    merge: str = "geometric_median",
    d: int | None = None,
) -> float:
    """Excess risk that DC-SGD stays below with probability 1 − δ, for Lipschitz losses (Theorem 1).

    (λ₀² λ₁² / κ³) · c log(1/δ) / n, with steps αₜ = 1/(κ max(1, t)) and n ≥ k = ⌈8 log(1/δ)⌉.

    Parameters
    ----------
    n : int
        Rows.
    delta : float
        One minus the confidence.
    lipschitz, smoothness, strong_convexity : float
        λ₀ of the loss, λ₁ and κ of the risk; κ ≤ λ₁.
    merge : str
        A name in ``MERGES``.
    d : int, optional
        Number of parameters; only the coordinate median needs it.

    Examples
    --------
    >>> round(bound_dc(10_000, 0.05, lipschitz=1, smoothness=1, strong_convexity=1), 3)
    0.46
    """
    check_problem(lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity)
    check_conditioning(strong_convexity, smoothness)
    require(n, blocks_for(delta, "dc"), "n ≥ ⌈8 log(1/δ)⌉")
    problem = lipschitz**2 * smoothness**2 / strong_convexity**3
    return problem * risk_constant(merge, d) * -math.log(delta) / n


def bound_sgd(n: int, delta: float, *, lipschitz: float, smoothness: float, strong_convexity: float) -> float:
    """Excess risk of one SGD with probability 1 − δ, Lipschitz (Theorem "learn_sc_lip_smooth_SGDlast").

    (λ₁/n)(λ₀/κ)²/δ, with steps αₜ = 1/(κ max(1, t)). It grows with 1/δ, where that of DC-SGD
    (:func:`bound_dc`) grows with log(1/δ).

    Examples
    --------
    >>> bound_sgd(10_000, 0.05, lipschitz=1, smoothness=1, strong_convexity=1)
    0.002
    """
    check_problem(lipschitz=lipschitz, smoothness=smoothness, strong_convexity=strong_convexity)
    check_conditioning(strong_convexity, smoothness)
    _check_delta(delta)
    require(n, 1, "n ≥ 1")
    return smoothness / n * (lipschitz / strong_convexity) ** 2 / delta


def bound_sgd_smooth(
    n: int,
    delta: float,
    *,
    smoothness: float,
    strong_convexity: float,
    gradient_moment: float,
    start_distance: float,
    a: float = 2.0,
) -> float:
    """Excess risk of one SGD with probability 1 − δ, smooth losses (Theorem "learn_sc_smooth_SGDlast").

    E‖G(w*; Z)‖²/(n − M* + b) · (2a²λ₁/κ)/δ with b = 2aλ₁, for n ≥ M*; parameters as in
    :func:`bound_dc_smooth`.

    Examples
    --------
    >>> problem = dict(smoothness=1, strong_convexity=1, gradient_moment=4, start_distance=2)
    >>> round(bound_sgd_smooth(100_000, 0.05, **problem), 4)
    0.0064
    """
    check_numerator(a, "the bound")
    _check_delta(delta)
    forgotten = m_star(
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        start_distance=start_distance,
        gradient_moment=gradient_moment,
    )
    require(n, max(forgotten, 1), "n ≥ M*")
    rows = n - forgotten + 2 * a * smoothness
    return gradient_moment / rows * 2 * a**2 * smoothness / strong_convexity / delta


def bound_sgd_average(
    n: int, delta: float, *, smoothness: float, diameter: float, gradient_sd: float
) -> float:
    """Excess risk of one averaged SGD with probability 1 − δ (Theorem "learn_conv_smooth_SGDave").

    (Δ/δ)(Δλ₁/(2n) + σ_G/√n), with steps αₜ = 1/(λ₁ + √(nσ_G²)/Δ), without strong convexity.

    Examples
    --------
    >>> round(bound_sgd_average(10_000, 0.05, smoothness=1, diameter=1, gradient_sd=1), 3)
    0.201
    """
    check_problem(smoothness=smoothness, diameter=diameter)
    check_not_negative(gradient_sd=gradient_sd)
    _check_delta(delta)
    require(n, 1, "n ≥ 1")
    return diameter / delta * (diameter * smoothness / (2 * n) + gradient_sd / math.sqrt(n))


def m_star(
    *, smoothness: float, strong_convexity: float, start_distance: float, gradient_moment: float
) -> float:
    """M* of Theorem 2: rows until the start is forgotten.

    (4λ₁/κ)(max{λ₁κ‖ŵ₀ − w*‖² / E‖G(w*; Z)‖², 1} − 1).

    Examples
    --------
    >>> m_star(smoothness=2.0, strong_convexity=1.0, start_distance=3.0, gradient_moment=6.0)
    16.0
    """
    check_problem(smoothness=smoothness, strong_convexity=strong_convexity, gradient_moment=gradient_moment)
    check_not_negative(start_distance=start_distance)
    check_conditioning(strong_convexity, smoothness)
    ratio = smoothness * strong_convexity * start_distance**2 / gradient_moment
    return 4 * smoothness / strong_convexity * (max(ratio, 1.0) - 1)


def m_delta(delta: float, start_rows: float, b: float) -> float:
    """M_δ of Theorem 2: 16 log(1/δ)(M* − b), and not below zero, where the paper's bound turns around.

    Examples
    --------
    >>> m_delta(0.05, start_rows=1.0, b=4.0)
    0.0
    """
    _check_delta(delta)
    return -16 * math.log(delta) * max(start_rows - b, 0.0)


def bound_dc_smooth(
    n: int,
    delta: float,
    *,
    smoothness: float,
    strong_convexity: float,
    gradient_moment: float,
    start_distance: float,
    a: float = 2.0,
    merge: str = "geometric_median",
    d: int | None = None,
) -> float:
    """Excess risk that DC-SGD stays below with probability 1 − δ, gradients heavy-tailed too (Theorem 2).

    E‖G(w*; Z)‖² (aλ₁/κ)² · 2c log(1/δ)/(n − M_δ), with steps α₀ = 1/(2λ₁), αₜ = a/(κt + b), b = 2aλ₁,
    for n ≥ max(k, M*) and n > M_δ.

    Parameters
    ----------
    n : int
        Rows.
    delta : float
        One minus the confidence.
    smoothness, strong_convexity : float
        λ₁ of the loss and κ of the risk.
    gradient_moment : float
        E‖G(w*; Z)‖².
    start_distance : float
        ‖ŵ₀ − w*‖.
    a : float
        Numerator of the step sizes, at least 2. The paper asks for a > 0 only, an erratum: the bound would
        then vanish along with a². It rests on the recursion e' ≤ (1 − κα)e + 2α²E‖G(w*; Z)‖² of the squared
        distance, which keeps e below 2a²E‖G(w*; Z)‖²/((a − 1)κ(κt + b)); the printed constant needs a ≥ 2.
    merge, d
        As in :func:`bound_dc`.

    Examples
    --------
    >>> problem = dict(smoothness=1, strong_convexity=1, gradient_moment=4, start_distance=2)
    >>> round(bound_dc_smooth(100_000, 0.05, **problem), 3)
    1.472
    """
    check_numerator(a, "Theorem 2")
    start_rows = m_star(
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        start_distance=start_distance,
        gradient_moment=gradient_moment,
    )
    lost = m_delta(delta, start_rows, 2 * a * smoothness)
    require(n, max(blocks_for(delta, "dc"), start_rows, math.floor(lost) + 1), "n ≥ max(k, M*) and n > M_δ")
    problem = gradient_moment * (a * smoothness / strong_convexity) ** 2
    return problem * 2 * risk_constant(merge, d) * -math.log(delta) / (n - lost)


def bound_rv(
    n: int,
    delta: float,
    *,
    smoothness: float,
    diameter: float,
    loss_sd: float,
    gradient_sd: float,
    mean: str = "catoni",
) -> float:
    """Excess risk that RV-SGDAve stays below with probability 1 − 3δ, 0 < δ ≤ 1/3 (Theorem 3).

    2c sqrt(2(1 + log(1/δ₀)) σ_ℓ²/n) + 3(kΔ²λ₁/n + sqrt(2kΔ²σ_G²/n)), δ₀ = δ/(2⌈log(1/δ)⌉), n ≥ 2k,
    with steps αₜ = 1/(λ₁ + 1/a), a = Δ/sqrt(nσ_G²/(2k)).

    Parameters
    ----------
    n : int
        Rows; half of them validate.
    delta : float
        A third of one minus the confidence.
    smoothness : float
        λ₁ of the risk.
    diameter : float
        Δ, of the constraint set.
    loss_sd, gradient_sd : float
        Bounds on the standard deviations of loss and gradient over the set.
    mean : {"catoni", "median_of_means", "truncated_mean"}
        Which robust mean validates; it gives c.

    Examples
    --------
    >>> problem = dict(smoothness=1, diameter=1, loss_sd=1, gradient_sd=1)
    >>> round(bound_rv(100_000, 0.05, **problem), 3)
    0.073
    """
    check_problem(smoothness=smoothness, diameter=diameter)
    check_not_negative(loss_sd=loss_sd, gradient_sd=gradient_sd)
    if not 0 < delta <= 1 / 3:
        raise ValueError(f"Theorem 3 needs 0 < delta ≤ 1/3; got {delta}")
    constant = lookup("mean", mean, VALIDATION_CONSTANTS)
    k = blocks_for(delta, "rv")
    require(n, 2 * k, "n ≥ 2k")
    log_term = 1 + math.log(2 * math.ceil(-math.log(delta))) - math.log(delta)
    validation = 2 * constant * loss_sd * math.sqrt(2 * log_term / n)
    learning = k * diameter**2 * smoothness / n + diameter * gradient_sd * math.sqrt(2 * k / n)
    return validation + 3 * learning


def samples_for(
    excess_risk: float, delta: float, bound: Callable[..., float] = bound_dc, **problem: object
) -> int:
    """Rows needed for a bound to fall to ``excess_risk``: the inverse of the bounds above.

    Parameters
    ----------
    excess_risk : float
        What the bound is to reach.
    delta : float
        As in the bound.
    bound : callable
        :func:`bound_dc`, :func:`bound_dc_smooth` or :func:`bound_rv`.
    **problem
        The other arguments of the bound.

    Examples
    --------
    >>> samples_for(0.46, 0.05, lipschitz=1, smoothness=1, strong_convexity=1)
    10004
    """
    check_problem(excess_risk=excess_risk)
    _check_delta(delta)

    def enough(n: int) -> bool:
        try:
            return bound(n, delta, **problem) <= excess_risk
        except TooFewRowsError:
            return False

    high = 1
    while not enough(high):
        high *= 2
        if high > 2**200:
            raise ValueError(f"no number of rows brings the bound down to {excess_risk:g} for this problem")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check_delta(delta: float) -> None:
    """Refuse a confidence that is none."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}")
