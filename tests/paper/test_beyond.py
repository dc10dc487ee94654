"""What goes beyond the paper: methods against slow transcriptions, experiments, claims and figures."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tailproof.core.means import catoni
from tailproof.core.merge import geometric_median
from tailproof.core.partition import blocks
from tailproof.paper.beyond.claims import BEYOND_CLAIMS
from tailproof.paper.beyond.experiments import BEYOND_EXPERIMENTS, SparseProblem
from tailproof.paper.beyond.figures import BEYOND_FIGURES
from tailproof.paper.beyond.methods import BEYOND, POWER, PROCESSES, truncated
from tailproof.paper.catalogue import get_experiment
from tailproof.paper.experiments import _nowhere, run_trial
from tailproof.paper.judging import judge
from tailproof.paper.methods import K, MethodRun
from tailproof.paper.simulated import Problem, seed_of
from tailproof.paper.store import Curves
from tailproof.paper.variants import Choices

N, D = 60, 3
STEP = 0.01 / math.sqrt(D)


def make_task(budget=6 * N, costs=(N, 2 * N), noise="lognormal"):
    problem = Problem(N, D, noise, 1.75)
    return MethodRun(problem, problem.draw(seed_of("beyond"), K), Choices(), budget, np.array(costs))


def gradient_at(task, w, row):
    return (task.data.X[row] @ w - task.data.y[row]) * task.data.X[row]


def slow_process(task, block, updates, start, change):
    """Points of one process, gradient after gradient; ``change(gradient, t)`` gives what is subtracted."""
    w, path, order, passes = np.array(start), [], list(block.rows), 0
    for t in range(updates):
        if t == len(block) * (passes + 1):
            passes += 1
            order += list(block.rows[block_order(block, passes)])
        w = w - change(gradient_at(task, w, order[t]), t)
        path.append(w)
    return np.array(path)


def block_order(block, passes):
    """Places in the block of the rows of a pass: processes hold the rows of their block alone."""
    return type(block)(block.index, np.arange(len(block)), block.seed).order(passes)


def parts(task, k, rows=N):
    return blocks(rows, k, task.data.orders, shuffle=False)


def clipped_change(task):
    norms = [np.linalg.norm(gradient_at(task, task.data.starts[0], i)) for i in range(N)]
    level = np.quantile(norms, 0.9)
    return lambda: lambda g, t: STEP * g * min(1.0, level / np.linalg.norm(g))


def momentum_change(task):
    def fresh():
        v = np.zeros(D)

        def change(g, t):
            v[:] = 0.9 * v + 0.1 * g
            return STEP * v.copy()

        return change

    return fresh


def decaying_change(task):
    return lambda: lambda g, t: STEP / (1 + t / (N // K)) ** POWER * g


CHANGES = {"clipped": clipped_change, "momentum": momentum_change, "decaying": decaying_change}


@pytest.mark.parametrize("name", CHANGES)
def test_other_sub_processes_are_those_of_a_slow_transcription(name):
    task = make_task()
    fresh, start = CHANGES[name](task), task.data.starts[0]
    paths = [slow_process(task, block, 6 * N // K, start, fresh()) for block in parts(task, K)]
    found = BEYOND[f"DC-SGD [{name}]"](task)
    for place, updates in enumerate([N // K, 2 * N // K, 6 * N // K]):
        expected = geometric_median([path[updates - 1] for path in paths]).point
        np.testing.assert_allclose(found.points[place], expected, rtol=1e-9)
    assert found.costs.tolist() == [N, 2 * N, 6 * N]


@pytest.mark.parametrize("name", ["rounds", "fewer blocks later"])
def test_rounds_are_those_of_a_slow_transcription(name):
    task = make_task(budget=5 * N)
    k, start = (4 * K if name == "fewer blocks later" else K), task.data.starts[0]
    change = lambda g, t: STEP * g  # noqa: E731
    for length in (2 * N, 2 * N, N):
        updates = length // k
        ends = [slow_process(task, block, updates, start, change)[-1] for block in parts(task, k)]
        start = geometric_median(ends).point
    np.testing.assert_allclose(BEYOND[f"DC-SGD [{name}]"](task).points[-1], start, rtol=1e-9)


def test_early_stopping_keeps_the_candidate_of_least_validated_risk():
    task = make_task(budget=8 * N, costs=[N // 2 * i for i in range(1, 16)])
    plain, early = BEYOND["RV-SGDAve"](task), BEYOND["RV-SGDAve [early stopping]"](task)
    X, y = task.data.X[N // 2 :], task.data.y[N // 2 :]
    risks = catoni(np.square(plain.points @ X.T - y) / 2, scale="sd", delta=0.01, axis=1)
    for place in range(len(risks)):
        np.testing.assert_allclose(early.points[place], plain.points[np.argmin(risks[: place + 1])])


def test_truncation_has_its_anchor_at_the_mean_gradient_of_most_groups():
    task = make_task(noise="normal")
    memory = truncated(task).rule.memory
    X, start = task.data.X, task.data.starts[0]
    gradients = (X @ start - task.data.y)[:, None] * X
    assert memory.shape == (2 + 2 * (D + 1),)
    assert np.linalg.norm(memory[2 : 2 + D] - gradients.mean(axis=0)) < gradients.std()
    np.testing.assert_array_equal(memory[3 + D : 3 + 2 * D], start)


def test_the_sparse_problem_has_a_sparse_minimum_and_starts_at_zero():
    problem = SparseProblem(500, 8, "normal", 0.1, nonzero=2)
    data = problem.draw(seed_of("sparse"), 1)
    least_squares = np.linalg.lstsq(data.X, data.y, rcond=None)[0]
    np.testing.assert_allclose(least_squares, problem.minimum, atol=0.05)
    assert not data.starts.any()
    assert problem.excess_risk(problem.minimum) == 0


@pytest.fixture(scope="module")
def invented():
    """Made-up results of every experiment."""
    random, found = np.random.default_rng(0), {}
    for name in BEYOND_EXPERIMENTS:
        found[name] = {}
        for setting in get_experiment(name).settings:
            curves = {}
            for method, budget in setting.budgets.items():
                costs = np.append(setting.looks(budget, setting.problem.n), int(budget))
                excess = random.lognormal(0, 0.3, (5, costs.size))
                curves[method] = Curves(costs, excess, *random.lognormal(0, 1, (2, 5)))
            found[name][setting.name] = curves
    return found


def test_every_claim_can_be_measured_and_every_experiment_has_some(invented):
    for claim in BEYOND_CLAIMS:
        found = judge(claim, invented[claim.experiment], resamples=3)
        assert found.verdict in {"holds", "fails", "undecided"}
    assert {claim.experiment for claim in BEYOND_CLAIMS} == set(BEYOND_EXPERIMENTS)
    lines = [(claim.experiment, claim.text, claim.quantity) for claim in BEYOND_CLAIMS]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("name", BEYOND_EXPERIMENTS)
def test_methods_exist_have_equal_budgets_and_are_drawn(name, invented):
    experiment = get_experiment(name)
    for setting in experiment.settings:
        assert set(setting.budgets) <= set(BEYOND)
        assert len(set(setting.budgets.values())) == 1
    figures = BEYOND_FIGURES[name](invented[name])
    assert all(len(axes.lines) > 2 for figure in figures.values() for axes in figure.axes)


def test_a_trial_runs_every_method():
    experiment = get_experiment("beyond-e1")
    setting = experiment.setting("normal")
    short = replace(setting, budgets=dict.fromkeys(setting.budgets, 2.0 * setting.problem.n), looks=_nowhere)
    records = run_trial(experiment, short, 0, Choices())
    assert [record.method for record in records] == list(setting.budgets)
    assert all(np.isfinite(record.excess).all() for record in records)
    assert {name.partition("[")[2][:-1] for name in BEYOND} >= set(PROCESSES)
