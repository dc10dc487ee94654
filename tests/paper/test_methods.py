"""Each method of the paper against a slow, literal transcription on a tiny problem; what gradients cost."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from tailproof.core.means import catoni, median_of_means, truncated_mean
from tailproof.core.partition import blocks
from tailproof.paper.methods import METHODS, READINGS, K, MethodRun, log_costs
from tailproof.paper.simulated import Problem, seed_of
from tailproof.paper.stoppable_sgd import SubProcesses
from tailproof.paper.variants import Choices

N, D = 43, 3  # blocks of 5 and of 4 rows; a half of 21, in blocks of 3 and of 2
GEMAN = quad(lambda z: z * z / (1 + z * z) * norm.pdf(z), -np.inf, np.inf)[0]


def make_task(budget=6 * N, costs=None, n=N, average_after=0.0, **choices):
    problem = Problem(n, D, "lognormal", 1.75)
    data = problem.draw(seed_of("test", n), K)
    looks = log_costs(budget, records=12) if costs is None else np.array(costs)
    return MethodRun(problem, data, Choices(**choices), budget, looks, average_after)


def parts(n):
    return np.array_split(np.arange(n), K)


def gradients(data, w, rows):
    return (data.X[rows] @ w - data.y[rows])[:, None] * data.X[rows]


def slow_geometric_median(points):
    point = np.median(points, axis=0)
    for _ in range(5_000):
        pull = 1 / np.maximum(np.linalg.norm(points - point, axis=1), 1e-300)
        point = pull @ points / pull.sum()
    return point


def mean(data, w):
    return gradients(data, w, np.arange(N)).mean(axis=0), N


def geometric_median_of_means(data, w):
    return slow_geometric_median(np.array([gradients(data, w, rows).mean(axis=0) for rows in parts(N)])), N


def geman_scale(values):
    squares = (values - values.mean()) ** 2
    return math.exp(brentq(lambda s: np.mean(squares / (squares + math.exp(2 * s))) - GEMAN, -20, 20))


def m_estimate(data, w):
    def one(column):
        scale = geman_scale(column) * math.sqrt(N / math.log(100))
        pull = lambda t: np.sum(2 * np.arctan(np.exp((column - t) / scale)) - np.pi / 2)  # noqa: E731
        return brentq(pull, column.min(), column.max(), xtol=1e-13)

    return np.array([one(column) for column in gradients(data, w, np.arange(N)).T]), N


def median_block(data, w):
    losses = [np.mean((data.X[rows] @ w - data.y[rows]) ** 2 / 2) for rows in parts(N)]
    rows = parts(N)[sorted(range(K), key=lambda j: losses[j])[(K - 1) // 2]]
    return gradients(data, w, rows).mean(axis=0), len(rows)


SLOW = {"ERM-GD": mean, "RGD-MoM": geometric_median_of_means, "RGD-M": m_estimate, "RGD-Lec": median_block}


def slow_batch(task, gradient_at):
    """Every (cost, point) on the way, from the start to the first cost that is not below the budget."""
    seen = [(0, task.data.starts[0])]
    while seen[-1][0] < task.budget:
        cost, w = seen[-1]
        gradient, more = gradient_at(task.data, w)
        seen.append((cost + more, w - 0.1 / math.sqrt(D) * gradient))
    return seen


def slow_walks(task, k, rows, average_after=0.0):
    """(cost, iterates, averages) after every round of one update for each of k walks."""
    dealt = blocks(rows, k, np.random.SeedSequence(task.data.orders.entropy, spawn_key=(3,)), shuffle=False)
    each = task.choices.start == "each"
    W = task.data.starts[:k].copy() if each else np.repeat(task.data.starts[:1], k, axis=0)
    past, rounds = [], 0
    seen = [(0, W.copy(), W.copy())]
    while rounds * k < task.budget:
        for j, block in enumerate(dealt):
            i = block.order(rounds // len(block))[rounds % len(block)]
            W[j] = W[j] - 0.01 / math.sqrt(D) * gradients(task.data, W[j], [i])[0]
        rounds += 1
        if average_after and rounds == math.ceil(average_after / k):
            past = []
        else:
            past.append(W.copy())
        seen.append((rounds * k, W.copy(), np.mean(past, axis=0) if past else W.copy()))
    return seen


def slow_catoni(losses, delta=0.01):
    """Algorithm cat with the sample standard deviation: the narrow ψ of Catoni and Giulini."""
    n, log_term = len(losses), 2 * math.log(2 / delta)
    variance = losses.var()
    s = math.sqrt(n * (variance + variance * log_term / (n - log_term)) / log_term)

    def pull(t):
        x = np.clip((losses - t) / s, -math.sqrt(2), math.sqrt(2))
        return np.sum(x - x**3 / 6)

    return brentq(pull, losses.min(), losses.max(), xtol=1e-13)


VALIDS = {
    "wide": lambda losses: catoni(losses, delta=0.01, scale="sd", psi="wide"),
    "median of means": lambda losses: median_of_means(losses, delta=0.01),
    "truncated": lambda losses: truncated_mean(losses, delta=0.01),
    "dropped": lambda losses: truncated_mean(losses, delta=0.01, outside="drop"),
}


def slow_choice(task, candidates, cross, robust_mean=slow_catoni):
    n = task.problem.n

    def score(j):
        held_out = np.setdiff1d(np.arange(n), parts(n)[j]) if cross else np.arange(n // 2, n)
        return robust_mean((task.data.X[held_out] @ candidates[j] - task.data.y[held_out]) ** 2 / 2)

    return candidates[min(range(K), key=score)]


def looked_at(task, seen):
    """The last point with cost at most the one asked for, and the end."""
    return np.array([[w for cost, w in seen if cost <= look][-1] for look in task.costs] + [seen[-1][1]])


@pytest.mark.parametrize("name", SLOW)
def test_batch_methods_follow_their_equations(name):
    task = make_task()
    seen = slow_batch(task, SLOW[name])
    path = METHODS[name](task)
    np.testing.assert_allclose(path.points, looked_at(task, seen), rtol=1e-7, atol=1e-9)
    assert path.costs[-1] == seen[-1][0]


def test_sgd_is_one_walk_over_all_rows():
    task = make_task()
    seen = [(cost, iterates[0]) for cost, iterates, _ in slow_walks(task, 1, N)]
    np.testing.assert_allclose(METHODS["SGD"](task).points, looked_at(task, seen), rtol=1e-10)


def slow_coordinate_median(points):
    return np.array([sorted(column)[K // 2 - 1] + sorted(column)[K // 2] for column in points.T]) / 2


def slow_smallest_ball(points):
    """The point whose distance to the (k/2 + 1)-th nearest, itself counted, is least."""
    distances = np.sort(np.linalg.norm(points[:, None] - points, axis=2), axis=1)
    return points[distances[:, K // 2].argmin()]


SLOW_MERGES = {
    "DC-SGD": slow_geometric_median,
    "DC-SGD [smallest ball]": slow_smallest_ball,
    "DC-SGD [coordinate median]": slow_coordinate_median,
}


@pytest.mark.parametrize("name", SLOW_MERGES)
def test_dc_sgd_merges_k_walks_by_name(name):
    task = make_task()
    seen = [(cost, SLOW_MERGES[name](W)) for cost, W, _ in slow_walks(task, K, N)]
    np.testing.assert_allclose(METHODS[name](task).points, looked_at(task, seen), rtol=1e-6)


@pytest.mark.parametrize("start", ["one", "each"])
def test_dc_sgd_is_the_geometric_median_of_k_walks(start):
    task = make_task(start=start)
    seen = [(cost, slow_geometric_median(W)) for cost, W, _ in slow_walks(task, K, N)]
    for name in (
        "DC-SGD",
        "DC-SGD, 2 threads",
        "DC-SGD, 2 processes",
        *(["DC-SGD [each]"] if start == "each" else []),
    ):
        np.testing.assert_allclose(METHODS[name](task).points, looked_at(task, seen), rtol=1e-6)


N2 = 86  # validation by Catoni's mean needs at least 22 rows


@pytest.mark.parametrize("average_after", [0.0, 47.0])
@pytest.mark.parametrize("name", ["RV-SGD", "RV-SGDAve", "RV-SGD-CV", "RV-SGDAve-CV"])
def test_rv_takes_the_walk_with_the_least_robust_mean(name, average_after):
    task = make_task(n=N2, budget=3 * N2, average_after=average_after)
    average, cross = "Ave" in name, "CV" in name
    walked = slow_walks(task, K, N2 if cross else N2 // 2, average_after)
    seen = [(cost, slow_choice(task, A if average else W, cross)) for cost, W, A in walked]
    np.testing.assert_allclose(METHODS[name](task).points, looked_at(task, seen), rtol=1e-8)


@pytest.mark.parametrize("name", ["RV-SGDAve", "RV-SGDAve-CV"])
@pytest.mark.parametrize("valid", VALIDS)
def test_rv_validates_by_the_estimator_in_brackets(name, valid):
    task = make_task(n=400, budget=800, costs=[400])
    walked = slow_walks(task, K, 400 if "CV" in name else 200)
    at = [slow_choice(task, A, "CV" in name, VALIDS[valid]) for cost, _, A in walked if cost in (400, 800)]
    np.testing.assert_allclose(METHODS[f"{name} [{valid}]"](task).points, at, rtol=1e-8)


def test_rgd_m_by_the_standard_deviation_by_name_and_by_choice():
    chosen = METHODS["RGD-M"](make_task(m_scale="sd")).points
    assert np.array_equal(chosen, METHODS["RGD-M [sd]"](make_task()).points)
    assert not np.array_equal(chosen, METHODS["RGD-M"](make_task()).points)


def test_scales_of_validation_by_name_and_by_choice_agree():
    for scale in ("sd", "robust", "m-scale"):
        chosen = METHODS["RV-SGDAve"](make_task(n=200, rv_scale=scale)).points
        assert np.array_equal(chosen, METHODS[f"RV-SGDAve [{scale}]"](make_task(n=200)).points)


@pytest.mark.parametrize("average_after", [0.0, 47.0])
def test_the_true_average_is_that_of_the_true_walk(average_after):
    task = make_task(average_after=average_after)
    w, past, seen = task.data.starts[0], [], [(0, task.data.starts[0])]
    for rounds in range(1, math.ceil(task.budget / K) + 1):
        w = w - 0.01 / math.sqrt(D) * task.problem.covariance * (w - 1)
        past = [] if rounds == math.ceil(average_after / K) else [*past, w]
        seen.append((rounds * K, np.mean(past, axis=0) if past else w))
    np.testing.assert_allclose(METHODS["true SGDAve"](task).points, looked_at(task, seen), rtol=1e-10)


def test_true_curves_are_descent_on_the_risk():
    task = make_task()
    covariance, start = task.problem.covariance, task.data.starts[0]
    for name, step, unit in (("true GD", 0.1, N), ("true SGD", 0.01, K)):
        seen = [(0, start)]
        while seen[-1][0] < task.budget:
            cost, w = seen[-1]
            seen.append((cost + unit, w - step / math.sqrt(D) * covariance * (w - 1)))
        np.testing.assert_allclose(METHODS[name](task).points, looked_at(task, seen), rtol=1e-10)


COSTS = {  # of one update, at n = 100 rows
    "ERM-GD": 100, "RGD-MoM": 100, "RGD-M": 100, "RGD-Lec": 10, "SGD": 1, "DC-SGD": 10, "RV-SGD": 10,
    "RV-SGDAve": 10, "RV-SGD-CV": 10, "RV-SGDAve-CV": 10, "true GD": 100, "true SGD": 10, "true SGDAve": 10,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in METHODS if name not in READINGS and "," not in name])
def test_cost_of_every_method(name):
    """It moves with its first update, not before, and stops at the first cost not below the budget."""
    update = COSTS[name]
    path = METHODS[name](make_task(n=100, budget=233, costs=[update - 1, update]))
    start = make_task(n=100).data.starts[0]
    assert np.array_equal(path.points[0], start)
    assert not np.array_equal(path.points[1], start)
    assert path.costs[-1] == -(-233 // update) * update


def test_steps_of_the_walks_can_be_a_tenth():
    first = [
        METHODS["SGD"](make_task(budget=1, costs=[0], walk_step=step)).points[-1]
        for step in ("0.01", "0.001")
    ]
    start = make_task().data.starts[0]
    np.testing.assert_allclose(first[0] - start, 10 * (first[1] - start), rtol=1e-6)


def test_rgd_lec_can_be_charged_all_gradients():
    path = METHODS["RGD-Lec"](make_task(n=100, budget=233, lec_cost="all"))
    assert path.costs[-1] == 300


def test_a_trial_has_a_start_for_each_walk_and_the_first_is_for_all():
    task = make_task(start="each", costs=[0], budget=K)
    assert len(np.unique(task.data.starts, axis=0)) == K
    assert np.array_equal(METHODS["SGD"](task).points[0], task.data.starts[0])


def test_cross_validation_falls_for_the_block_that_it_does_not_see():
    """A candidate is not charged for the largest noise if its own block holds it; all others are."""
    problem, hits, trials = Problem(500, 2, "lognormal", 1.75), 0, 30
    for trial in range(trials):
        data = problem.draw(seed_of("unseen", trial))
        task = MethodRun(problem, data, Choices(), 28_284, np.empty(0, dtype=np.intp))
        point = METHODS["RV-SGDAve-CV"](task).points[-1]
        walks = SubProcesses(data.X, data.y, K, data.starts[:1], 0.01 / math.sqrt(2), data.orders)
        walks.advance_to(2829)
        chosen = int(np.flatnonzero((walks.look().averages == point).all(axis=1))[0])
        hits += chosen == int(np.argmax(np.abs(data.y - data.X.sum(axis=1)))) // 50
    assert hits >= 0.4 * trials  # by chance it would be a tenth
