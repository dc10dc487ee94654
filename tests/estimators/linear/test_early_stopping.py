"""Robust early stopping: the candidates of least held-out risk, wherever the rows are."""

import numpy as np
import pytest

import tailproof as tp
from pieces_data import ESTIMATORS, assert_same, chunks_of, rows, write_parquet
from tailproof.core.algorithms import MOST_PASSES, train
from tailproof.core.partition import blocks


class Counting:
    """A learner whose candidate is the number of its passes."""

    def start(self, block):
        return 0.0

    def advance(self, state):
        return state + 1.0

    def vector(self, state):
        return np.array([state])


class Here:
    def run(self, function, tasks):
        return [function(task) for task in tasks]


@pytest.mark.parametrize(
    ("risks", "best", "made"),
    [
        ((3, 2, 1, 2, 2), 3, 5),
        ((3, 2, 2, 1, 5, 1), 4, 6),
        ((1, 2, 3), 1, 3),
        ((np.nan, 2, 3, 4), 1, 3),
        ((2, 1.9999, 1.9998), 1, 3),
    ],
)
def test_training_ends_two_passes_after_the_least_risk(risks, best, made):
    told, seen = iter(risks), []
    passes = lambda candidates: next(told)  # noqa: E731
    found = train(Counting(), blocks(4, 2, 0), Here(), passes, lambda number, states: seen.append(number))
    assert found.states == [best, best]
    assert found.passes == made
    assert found.converged
    assert seen == list(range(1, made + 1))


def test_a_risk_that_always_falls_runs_into_the_cap():
    found = train(Counting(), blocks(4, 2, 0), Here(), lambda candidates: -candidates.vectors.sum())
    assert (found.passes, found.converged) == (MOST_PASSES, False)


@pytest.mark.parametrize("name", ["DC", "RV classifier"])
def test_estimators_and_streams(name, tmp_path):
    X, y = rows(600, classes=3 if "classifier" in name else 0)

    def make():
        model = ESTIMATORS[name](k=2, max_iter="early_stopping", random_state=0)
        return model.set_params(mean="median_of_means") if name.startswith("RV") else model

    assert_same(make().fit(X, y), make().set_params(n_jobs=2).fit(X, y))
    chunks = chunks_of(X, y, 3)
    model = tp.fit(make(), chunks)
    assert_same(model, tp.fit(make(), write_parquet(tmp_path, chunks)))
    assert model.n_iter_ >= 3
    assert model.score(X, y) > 0.5


def test_it_stops_before_noise_is_fitted():
    """As many parameters as half of the rows: more passes fit the noise."""
    ratios = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        X = random.standard_normal((300, 150))
        y = X[:, 0] + np.exp(1.5 * random.standard_normal(300))
        settings = {"k": 1, "random_state": 0, "step_size": ("decaying", 0.02, 0.3), "update": "explicit"}
        errors = []
        for passes in ("early_stopping", 60):
            model = tp.DCSGDRegressor(max_iter=passes, **settings).fit(X, y)
            errors.append(np.sum((model.coef_ - np.eye(150)[0]) ** 2))
        ratios.append(errors[0] / errors[1])
    assert np.median(ratios) < 0.5


def test_the_rows_of_blocks_do_not_hold_those_of_validation():
    X, y = rows(1_000)
    model = tp.DCSGDRegressor(k=4, max_iter="early_stopping", random_state=0, verbose=0).fit(X, y)
    assert model.report_.block_sizes.sum() == 900


def test_rounds_have_a_number_of_passes():
    with pytest.raises(ValueError, match="early stopping counts passes of one round"):
        tp.DCSGDRegressor(max_iter="early_stopping", rounds=2).fit(*rows(200))
