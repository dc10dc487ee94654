"""The law of noise whose size grows, learned by a sample, for rows in pieces: the same as in memory."""

from dataclasses import replace

import numpy as np
import pytest

import tailproof as tp
from pieces_data import chunks_of
from tailproof.data import robust_passes
from tailproof.estimators.robust_regressor.all_rows import level_means
from tailproof.estimators.robust_regressor.tuning import DEFAULT

ACROSS = "across these columns with the score that suits the noise best"
LAWS = {
    "log-normal": lambda rng, n: rng.lognormal(0, 1.2, n) - np.exp(0.72),
    "gamma": lambda rng, n: rng.gamma(2, size=n) - 2,
}
SIZES = {
    "exponential": lambda x: np.exp(0.5 * x),
    "straight": lambda x: 1 + 0.5 * np.maximum(x, 0),
}


class SixthChooses(tp.RobustRegressor):
    _tuning = replace(DEFAULT, compared_rows=20_000)


def rows(seed, law, sizes, n=120_000, d=5):
    rng = np.random.default_rng([seed, 53])
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.2)
    return X, X.sum(axis=1) + SIZES[sizes](X[:, 0]) * LAWS[law](rng, n)


def fitted(data):
    return tp.fit(SixthChooses(random_state=0), data)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_that_of_memory(seed, law, sizes):
    X, y = rows(seed, law, sizes)
    found, memory = fitted(chunks_of(X, y, 3)), SixthChooses(random_state=0).fit(X, y)
    for model in (found, memory):
        assert any(ACROSS in remark for remark in model.report_.remarks)
    error = np.linalg.norm(memory.coef_ - 1)
    assert np.linalg.norm(found.coef_ - memory.coef_) <= 0.01 * error


def test_sizes_without_a_law_are_those_of_memory():
    """Two passes would leave more than the last of their steps lets expect."""
    rng = np.random.default_rng([0, 77])
    X = rng.standard_normal((120_000, 12))
    y = X.sum(axis=1) + np.exp(0.4 * X[:, 0]) * rng.standard_t(5, len(X))
    found, memory = fitted(chunks_of(X, y, 3)), SixthChooses(random_state=0).fit(X, y)
    assert "by 3 passes" in found.report_.remarks[0]
    assert not any(ACROSS in remark for remark in found.report_.remarks)
    assert np.linalg.norm(found.coef_ - memory.coef_) <= 0.003 * np.linalg.norm(memory.coef_ - 1)


def test_it_does_not_depend_on_the_pieces():
    X, y = rows(2, "log-normal", "exponential", 60_000)
    few, many = (fitted(chunks_of(X, y, count)) for count in (2, 9))
    np.testing.assert_allclose(few.coef_, many.coef_, rtol=1e-10)
    assert abs(few.intercept_ - many.intercept_) <= 1e-10


def test_weights_count_as_rows_do():
    X, y = rows(3, "log-normal", "exponential", 60_000)
    weights = np.random.default_rng(0).choice([1.0, 2.0, 3.0], y.size)
    data = [(X[part], y[part], weights[part]) for part in np.array_split(np.arange(y.size), 4)]
    found, memory = fitted(data), SixthChooses(random_state=0).fit(X, y, weights)
    assert any(ACROSS in remark for remark in found.report_.remarks)
    error = np.linalg.norm(memory.coef_ - 1)
    assert np.linalg.norm(found.coef_ - memory.coef_) <= 0.01 * error


@pytest.fixture
def passes(monkeypatch):
    """What every pass of a fit was asked for, and its sums."""
    seen = []

    def totals(self, measure, before=robust_passes.AllRows._totals):
        seen.append((measure, before(self, measure)))
        return seen[-1][1]

    monkeypatch.setattr(robust_passes.AllRows, "_totals", totals)
    return seen


class TestThirdPass:
    """It is for the second fit alone: the levels are close after two."""

    def test_levels_are_not_added_up_again(self, passes, monkeypatch):
        X, y = rows(4, "log-normal", "exponential")
        found = fitted(chunks_of(X, y, 3))
        assert [measure.alone for measure, _ in passes] == [False, False, True]
        assert not passes[2][1].gradient.any()
        assert passes[2][1].second.any()
        assert "by 3 passes" in found.report_.remarks[0]
        monkeypatch.setattr(robust_passes.AllRows, "_is_left_alone", lambda self, descent: False)
        beside = fitted(chunks_of(X, y, 3))
        assert not any(measure.alone for measure, _ in passes[3:])
        error = np.linalg.norm(beside.coef_ - 1)
        assert np.linalg.norm(found.coef_ - beside.coef_) <= 0.003 * error

    def test_only_the_last_pass_judges(self, passes):
        X, y = rows(5, "log-normal", "exponential")
        fitted(chunks_of(X, y, 3))
        assert [measure.second.judged for measure, _ in passes[1:]] == [False, True]
        squares = [measure.second.of_scores(totals.second)[-6:] for measure, totals in passes]
        assert [part.any() for part in squares] == [False, False, True]


def test_what_travels_is_a_few_numbers_for_each_column(passes):
    counts = []
    for d in (4, 8, 12):
        fitted(chunks_of(*rows(7, "log-normal", "exponential", 30_000, d), 3))
        second = passes[-1][0].second
        assert second.law is not None
        counts.append(second.count - second.equations.gamma.size)
    # Of each column its score and square by size, and its score by the law.
    assert np.diff(counts).tolist() == [3 * 4, 3 * 4]


def test_mean_residuals_of_rows_that_are_not_truncated_are_those_after_the_last_step(monkeypatch):
    X, y = rows(6, "log-normal", "straight")
    told = []

    def evidence(path, second, measure, totals, before=robust_passes.evidence_of):
        told.append((path, totals, before(path, second, measure, totals)))
        return told[0][-1]

    monkeypatch.setattr(robust_passes, "evidence_of", evidence)
    unit = []
    monkeypatch.setattr(
        robust_passes.AllRows,
        "refitted",
        lambda self, path, members, of, before=robust_passes.AllRows.refitted: (
            unit.append(of) or before(self, path, members, of)
        ),
    )
    fitted(chunks_of(X, y, 3))
    (path, totals, found), cut = told[0], told[0][0].levels.truncated
    every = path.moved(X, unit[0].to_unit(y), np.ones(y.size))
    exact = level_means(replace(every, phi=path.phi), np.zeros(y.size)).inside[cut]
    of_pass = (totals.curves[:, 1] / totals.curves[:, 0])[cut]
    assert np.linalg.norm(found.means.inside[cut] - exact) <= 0.5 * np.linalg.norm(of_pass - exact)
