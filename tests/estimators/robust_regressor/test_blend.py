"""What weighs candidates: held-out losses, what the fits say of themselves, and the veto."""

from dataclasses import replace

import numpy as np
import pytest

from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor.blend import blend_weights
from tailproof.estimators.robust_regressor.candidates import Candidate, RegressionTask
from tailproof.estimators.robust_regressor.choice import _weights, sane_candidates, without_absurd
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.truncation_path import Evidence, stricter_where_rare
from tailproof.estimators.robust_regressor.tuning import DEFAULT

SQUARES = LOSSES["squared_error"]


def path(noise, n=3_000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return solve_path(rows_of(X, X.sum(axis=1) + noise(rng, X), np.ones(n), SQUARES, True), rng)


def independent(rng, X):
    return rng.lognormal(0, 1.2, len(X))


def multiplied(rng, X):
    return rng.lognormal(0, 1.2, len(X)) * np.exp(0.7 * X[:, 0])


class TestEvidence:
    @pytest.mark.parametrize("seed", range(5))
    def test_conflict_tells_noise_that_depends_on_x(self, seed):
        plain, biased = (path(noise, seed=seed).evidence().conflict for noise in (independent, multiplied))
        assert plain[:6].max() < 3.5 < biased[:6].min()

    def test_predicted_risks_are_those_of_repeated_samples(self):
        predicted, errors = [], []
        for seed in range(40):
            fitted = path(lambda rng, X: rng.standard_t(3, len(X)), n=400, d=3, seed=seed)
            coef = fitted.rows.unscaled(fitted.basis.map @ fitted.phi)[0]
            errors.append(((coef - 1) ** 2).sum(axis=1))
            predicted.append(fitted.evidence().variance)
        ratio = np.mean(errors, axis=0) / np.mean(predicted, axis=0)
        assert np.all((ratio > 0.6) & (ratio < 1.6))

    def test_it_is_silent_where_the_theory_does_not_hold(self):
        assert np.isnan(path(independent, n=50).evidence().conflict).all()
        rng = np.random.default_rng(0)
        X = rng.standard_normal((500, 2))
        counts = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
        log = solve_path(rows_of(X, counts, np.ones(500), LOSSES["poisson"], True), rng)
        assert np.isnan(log.evidence().variance).all()


class TestBlend:
    losses = np.random.default_rng(0).pareto(2.1, (500, 1)) + 1e-3 * np.random.default_rng(1).standard_normal(
        (500, 3)
    )

    def test_where_fits_agree_predicted_risks_decide(self):
        weights = blend_weights(
            self.losses, 2, 0.05, evidence=Evidence(np.array([1.0, 0.1, 5.0]), np.zeros(3))
        )
        assert weights[1] > 0.99

    def test_where_they_conflict_held_out_losses_do(self):
        losses = self.losses.copy()
        losses[:, 1] += 0.01
        evidence = Evidence(np.array([1.0, 0.1, 5.0]), np.array([9.0, 9.0, 0.0]))
        assert blend_weights(losses, 2, 0.05, evidence=evidence)[1] == 0.0

    def test_without_evidence_least_squares_keeps_what_is_in_doubt(self):
        weights = blend_weights(self.losses, 2, 0.05)
        np.testing.assert_allclose(weights.sum(), 1)
        assert weights[2] > 0


def task_of(n=100):
    folds = tuple(np.arange(k, n, 5) for k in range(5))
    X = np.zeros((n, 1))
    return RegressionTask(X, X[:, 0], np.empty(0), SQUARES, True, 0.05, folds, np.random.SeedSequence(0))


def candidates(variance, conflict):
    """Levels, the last of them least squares, with what they say of themselves."""
    names = [*(f"level {j}" for j in range(len(variance) - 1)), "untruncated"]
    said = zip(names, variance, conflict, strict=True)
    return [Candidate(name, np.empty(0), None, variance=v, conflict=c) for name, v, c in said]


class TestFewInformativeRows:
    """Where at most 5% of the rows are informative about the mean."""

    @pytest.mark.parametrize("informative_share", [0.0, 0.001, 0.05])
    def test_less_conflict_is_tolerated(self, informative_share):
        tuning = stricter_where_rare(informative_share, DEFAULT)
        assert (tuning.conflict_tolerated, tuning.conflict_certain) == (0.5, 1.5)
        assert replace(tuning, conflict_tolerated=2.5, conflict_certain=3.5) == DEFAULT

    @pytest.mark.parametrize("informative_share", [0.0501, 0.5, 1.0])
    def test_elsewhere_nothing_changes(self, informative_share):
        assert stricter_where_rare(informative_share, DEFAULT) is DEFAULT

    def test_what_is_stricter_stays(self):
        strict = replace(DEFAULT, conflict_tolerated=0.1, conflict_certain=0.2)
        assert stricter_where_rare(0.01, strict) is strict

    def test_a_path_knows(self):
        def claims(rng, X):
            return 1e-3 * rng.standard_normal(len(X)) + (rng.random(len(X)) < 0.02)

        few, many = path(claims), path(independent)
        assert few.informative_share < 0.03
        assert few.cautious().rows.tuning.conflict_tolerated == 0.5
        assert few.cautious().informative_share == few.informative_share
        assert many.cautious() is many

    def test_predicted_risks_decide_where_levels_agree_closely_alone(self):
        losses, task = TestBlend.losses, task_of(500)
        at = {
            (share, conflict): _weights(candidates([1.0, 0.1, 5.0], [conflict] * 3), losses, share, task)
            for share in (0.05, 0.0501)
            for conflict in (0.4, 2.0)
        }
        for key in ((0.05, 0.4), (0.0501, 0.4), (0.0501, 2.0)):
            assert at[key][1] > 0.99
        assert at[0.05, 2.0][1] < 0.9

    @pytest.mark.parametrize(
        ("informative_share", "kept"), [(0.01, True), (0.05, True), (0.0501, False), (1.0, False)]
    )
    def test_medians_of_losses_veto_nobody(self, informative_share, kept):
        """Most rows are far better off with the first; the others make up for it."""
        losses = np.ones((1_000, 2))
        losses[:, 0] = np.where(np.arange(1_000) // 5 % 10 == 0, 9.9, 1e-3)
        nothing = [np.nan, np.nan]
        weights = _weights(candidates(nothing, nothing), losses, informative_share, task_of(1_000))
        assert weights[0] > 0.1
        assert (weights[1] > 0.1) == kept
        assert weights.sum() == pytest.approx(1.0)


class TestVeto:
    def test_a_few_absurd_predictions_are_noticed(self):
        losses = np.random.default_rng(0).pareto(3, (100, 1)) * np.ones((1, 3))
        losses[7, 0] += 1e3
        assert sane_candidates(losses, task_of()).tolist() == [1, 2]

    def test_one_bad_fold_is_noticed(self):
        losses = np.random.default_rng(0).random((100, 1)) * np.ones((1, 2))
        losses[np.arange(0, 100, 5), 1] *= 2.2
        assert sane_candidates(losses, task_of()).tolist() == [0]

    def test_heavy_noise_alone_vetoes_nobody(self):
        noise = np.random.default_rng(0).pareto(1.1, (100, 1)) ** 2
        losses = noise + 0.01 * np.random.default_rng(1).random((100, 4))
        assert sane_candidates(losses, task_of()).size == 4

    def test_somebody_is_always_left(self):
        assert sane_candidates(np.full((100, 2), np.inf), task_of()).size == 2
        assert sane_candidates(np.zeros((100, 2)), task_of()).size == 2

    @pytest.mark.parametrize("holes", [False, True])
    def test_who_misses_most_rows_by_far_has_no_weight(self, holes):
        losses = np.random.default_rng(0).pareto(0.5, (100, 1)) * np.array([[1.0, 1.0, 1e3]])
        losses[:4, 1] = np.nan if holes else 0.0
        weights = without_absurd(np.array([0.05, 0.15, 0.8]), losses, task_of())
        np.testing.assert_allclose(weights, [0.25, 0.75, 0.0])

    def test_by_far_is_a_hundred_times(self):
        losses = np.array([[1.0, 99.0, 101.0]]) * np.ones((100, 1))
        weights = without_absurd(np.array([0.2, 0.3, 0.5]), losses, task_of())
        np.testing.assert_allclose(weights, [0.4, 0.6, 0.0])

    def test_a_weight_of_one_percent_is_in_the_running(self):
        losses = np.array([[1.0, 1e3]]) * np.ones((100, 1))
        for least, vetoes in ((0.0099, False), (0.01, True)):
            weights = without_absurd(np.array([least, 1.0 - least]), losses, task_of())
            assert (weights[1] == 0.0) == vetoes

    def test_who_is_out_of_the_running_vetoes_nobody(self):
        losses = np.array([[1.0, 1e3]]) * np.ones((100, 1))
        weights = np.array([0.001, 0.999])
        assert without_absurd(weights, losses, task_of()) is weights

    def test_losses_of_zero_veto_nobody(self):
        weights = np.array([0.5, 0.5])
        assert without_absurd(weights, np.array([[0.0, 1.0]]) * np.ones((100, 1)), task_of()) is weights
