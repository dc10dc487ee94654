"""What weighs candidates: held-out losses, what the fits say of themselves, and the veto."""

import numpy as np
import pytest

from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor.blend import blend_weights
from tailproof.estimators.robust_regressor.candidates import RegressionTask
from tailproof.estimators.robust_regressor.choice import sane_candidates, without_absurd
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.truncation_path import Evidence

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


class TestVeto:
    def task(self, n=100):
        folds = tuple(np.arange(k, n, 5) for k in range(5))
        X = np.zeros((n, 1))
        return RegressionTask(X, X[:, 0], np.empty(0), SQUARES, True, 0.05, folds, np.random.SeedSequence(0))

    def test_a_few_absurd_predictions_are_noticed(self):
        losses = np.random.default_rng(0).pareto(3, (100, 1)) * np.ones((1, 3))
        losses[7, 0] += 1e3
        assert sane_candidates(losses, self.task()).tolist() == [1, 2]

    def test_one_bad_fold_is_noticed(self):
        losses = np.random.default_rng(0).random((100, 1)) * np.ones((1, 2))
        losses[np.arange(0, 100, 5), 1] *= 2.2
        assert sane_candidates(losses, self.task()).tolist() == [0]

    def test_heavy_noise_alone_vetoes_nobody(self):
        noise = np.random.default_rng(0).pareto(1.1, (100, 1)) ** 2
        losses = noise + 0.01 * np.random.default_rng(1).random((100, 4))
        assert sane_candidates(losses, self.task()).size == 4

    def test_somebody_is_always_left(self):
        assert sane_candidates(np.full((100, 2), np.inf), self.task()).size == 2
        assert sane_candidates(np.zeros((100, 2)), self.task()).size == 2

    @pytest.mark.parametrize("holes", [False, True])
    def test_who_misses_most_rows_by_far_has_no_weight(self, holes):
        losses = np.random.default_rng(0).pareto(0.5, (100, 1)) * np.array([[1.0, 1.0, 1e3]])
        losses[:4, 1] = np.nan if holes else 0.0
        weights = without_absurd(np.array([0.05, 0.15, 0.8]), losses, self.task())
        np.testing.assert_allclose(weights, [0.25, 0.75, 0.0])

    def test_who_is_out_of_the_running_vetoes_nobody(self):
        losses = np.array([[1.0, 1e3]]) * np.ones((100, 1))
        weights = np.array([0.001, 0.999])
        assert without_absurd(weights, losses, self.task()) is weights

    def test_losses_of_zero_veto_nobody(self):
        weights = np.array([0.5, 0.5])
        assert without_absurd(weights, np.array([[0.0, 1.0]]) * np.ones((100, 1)), self.task()) is weights
