"""What comes out of a fit: the model, its validation and its report."""

import re

import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression

import reference
from linear_models import CLASSIFIERS, DC, REGRESSORS, RV, data, equal, every_estimator
from tailproof import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor
from tailproof.core.losses import LOSSES
from tailproof.core.means import MEANS, mean_for
from tailproof.core.merge import MERGES
from tailproof.core.partition import blocks
from tailproof.core.sets import get_set


class TestValidation:
    @pytest.mark.parametrize("mean", MEANS)
    @pytest.mark.parametrize("average", [True, False])
    def test_risks_are_robust_means_of_losses_on_held_out_rows(self, mean, average):
        X, y = data(RVSGDRegressor, n=1_000)
        model = RVSGDRegressor(
            mean=mean, k=6, shuffle=False, random_state=0, validation_fraction=0.3, average=average
        ).fit(X, y)
        losses = (model.candidates_[:, :4] @ X[700:].T + model.candidates_[:, 4:] - y[700:]) ** 2 / 2
        risks = [MEANS[mean](row, delta=0.05) for row in losses]
        assert np.allclose(model.validation_risk_, risks, rtol=1e-9)
        assert model.best_index_ == np.argmin(risks)
        assert np.allclose(np.append(model.coef_, model.intercept_), model.candidates_[model.best_index_])
        assert model.report_.mean == mean
        assert model.report_.block_sizes.sum() == 700
        assert model.report_.method == f"{'RV-SGDAve' if average else 'RV-SGD'}, mean={mean}"

    @pytest.mark.parametrize("kind", RV)
    @pytest.mark.parametrize("shuffle", [True, False])
    def test_cross_validation_scores_on_the_other_blocks(self, kind, shuffle):
        X, y = data(kind, n=900)
        model = kind(cross_validate=True, k=4, shuffle=shuffle, random_state=7).fit(X, y)
        name, target = ("squared_error", y) if kind in REGRESSORS else ("log_loss", 2 * y - 1)
        parts = blocks(900, 4, np.random.SeedSequence(7), shuffle=shuffle)
        for part, candidate, risk in zip(parts, model.candidates_, model.validation_risk_, strict=True):
            outside = np.setdiff1d(np.arange(900), part.rows)
            p = X[outside] @ candidate[:-1] + candidate[-1]
            losses = np.array([reference.value(name, a, b) for a, b in zip(p, target[outside], strict=True)])
            assert risk == pytest.approx(MEANS["catoni"](losses, delta=0.05), rel=1e-9)
        assert model.best_index_ == np.argmin(model.validation_risk_)
        assert "RV-SGDAve-CV" in model.report_.method
        assert model.report_.theorem.startswith("none")
        assert model.report_.block_sizes.sum() == 900

    @pytest.mark.parametrize("mean", MEANS)
    def test_small_samples_fall_back(self, mean):
        X, y = data(RVSGDRegressor, n=20)
        model = RVSGDRegressor(mean=mean, k=2, random_state=0).fit(X, y)
        assert model.report_.mean == mean_for(mean, 10, 0.05)
        assert (model.report_.mean != mean) == (mean in ("catoni", "truncated_mean"))
        tiny = RVSGDRegressor(mean=mean, random_state=0).fit(X[:4], y[:4])
        assert tiny.report_.mean == mean_for(mean, 2, 0.05)

    @pytest.mark.parametrize("loss", ["log_loss", "hinge"])
    def test_several_classes(self, loss):
        X, y = data(RVSGDClassifier, n=2_000, classes=4)
        model = RVSGDClassifier(loss, k=5, shuffle=False, random_state=0, mean="mean").fit(X, y)
        risks = []
        for candidate in model.candidates_:
            p = X[1000:] @ candidate[:, :-1].T + candidate[:, -1]
            if loss == "log_loss":
                risks.append(np.mean(np.log(np.exp(p).sum(axis=1)) - p[np.arange(1000), y[1000:]]))
            else:
                signs = np.where(y[1000:, None] == np.arange(4), 1, -1)
                risks.append(np.maximum(0, 1 - signs * p).sum(axis=1).mean())
        assert np.allclose(model.validation_risk_, risks, rtol=1e-9)

    def test_intervals_hold_the_risks(self):
        X, y = data(RVSGDRegressor, n=1_000)
        report = RVSGDRegressor(random_state=0).fit(X, y).report_
        assert np.all(report.validation_low < report.validation_risk)
        assert np.all(report.validation_risk < report.validation_high)


class TestModels:
    @every_estimator
    @pytest.mark.parametrize("classes", [2, 3, 5])
    def test_shapes(self, kind, classes):
        X, y = data(kind, n=600, classes=classes)
        model = kind(k=3, random_state=0).fit(X, y)
        if kind in REGRESSORS:
            assert model.coef_.shape == (4,)
            assert isinstance(model.intercept_, float)
            assert model.candidates_.shape == (3, 5)
            return
        outputs = 1 if classes == 2 else classes
        assert model.coef_.shape == (outputs, 4)
        assert model.intercept_.shape == (outputs,)
        assert model.candidates_.shape == ((3, 5) if classes == 2 else (3, classes, 5))
        assert model.classes_.tolist() == list(range(classes))
        scores, chances = model.decision_function(X), model.predict_proba(X)
        assert scores.shape == ((600,) if classes == 2 else (600, classes))
        assert np.allclose(chances.sum(axis=1), 1)
        assert np.array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))
        assert np.allclose(np.log(chances), model.predict_log_proba(X))
        assert model.score(X, y) > LogisticRegression(C=1e6).fit(X, y).score(X, y) - 0.05

    @pytest.mark.parametrize("kind", CLASSIFIERS)
    @pytest.mark.parametrize("loss", reference.BINARY)
    @pytest.mark.parametrize("classes", [2, 3])
    def test_every_classification_loss(self, kind, loss, classes):
        X, y = data(kind, n=2_000, classes=classes)
        labels = np.array(["low", "mid", "top"])[y]
        model = kind(loss, random_state=0).fit(X, labels)
        assert model.score(X, labels) > LogisticRegression(C=1e6).fit(X, labels).score(X, labels) - 0.03
        assert hasattr(model, "predict_proba") == (loss == "log_loss")

    @pytest.mark.parametrize("kind", REGRESSORS)
    @pytest.mark.parametrize("loss", reference.REGRESSION)
    def test_every_regression_loss(self, kind, loss):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((4_000, 3))
        if LOSSES[loss].link == "log":
            model = kind(loss, random_state=0).fit(X, rng.gamma(2.0, np.exp(1 + X.sum(axis=1) / 4) / 2))
            assert np.allclose(model.coef_, 0.25, atol=0.08)
            assert np.allclose(model.predict(X), np.exp(X @ model.coef_ + model.intercept_))
        else:
            model = kind(loss, random_state=0).fit(X, 1 + X.sum(axis=1) / 4 + 0.5 * rng.standard_t(3, 4_000))
            assert np.allclose(model.coef_, 0.25, atol=0.08)
        assert abs(model.intercept_ - 1) < 0.1

    def test_several_classes_are_fitted_to_the_end(self):
        """Steps half as long left three to five times the excess log loss of logistic regression."""
        draws = [_excess_log_losses(seed) for seed in range(3)]
        divided, plain = np.median(draws, axis=0)
        assert divided < 2.2 * plain

    @pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
    def test_pinball_estimates_its_quantile(self, quantile):
        X, y = data(n=20_000)
        model = DCSGDRegressor("pinball", loss_parameter=quantile, random_state=0).fit(X, y)
        assert np.mean(y < model.predict(X)) == pytest.approx(quantile, abs=0.02)

    @every_estimator
    @pytest.mark.parametrize(
        "constraint", [("ball", 0.5), ("box", -0.1, 0.3), ("l1_ball", 0.7), ("simplex", 0.9)], ids=str
    )
    def test_model_is_in_the_constraint_set(self, kind, constraint):
        X, y = data(kind, n=1_000)
        X *= np.array([1.0, 10.0, 0.1, 3.0])
        for how in MERGES if kind in DC else ["mean"]:
            more = {"merge" if kind in DC else "mean": how}
            model = kind(constraint=constraint, max_iter=2, random_state=0, **more)
            for given in (constraint, get_set(constraint)):
                model.set_params(constraint=given).fit(X, y)
                assert np.allclose(model.coef_.ravel(), get_set(constraint).project(model.coef_.ravel()))

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_penalties_shrink(self, kind):
        X, y = data(kind, n=20_000)
        free = kind(random_state=0).fit(X, y)
        ridge = kind(random_state=0, penalty="l2", alpha=1.0).fit(X, y)
        lasso = kind(random_state=0, penalty="l1", alpha=100.0, average=False).fit(X, y)
        # Standard normal features: ridge halves the coefficients.
        assert np.allclose(ridge.coef_, free.coef_ / 2, atol=0.12)
        assert np.all(lasso.coef_ == 0)
        none = kind(random_state=0, penalty=None, alpha=1.0).fit(X, y)
        assert equal(none, free)

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_ridge_in_any_units(self, kind):
        """The penalty is on coef_, so that the ridge solution of unscaled columns is the answer."""
        rng = np.random.default_rng(0)
        scales = np.array([0.5, 1.0, 2.0])
        X = rng.standard_normal((20_000, 3)) * scales
        y = X.sum(axis=1) + 0.1 * rng.standard_normal(20_000)
        model = kind(random_state=0, penalty="l2", alpha=0.5).fit(X, y)
        assert np.allclose(model.coef_, scales**2 / (scales**2 + 0.5), atol=0.05)


class TestReport:
    @pytest.mark.parametrize("kind", DC)
    def test_of_merging(self, kind):
        X, y = data(kind, n=1_003)
        model = kind(k=10, random_state=8).fit(X, y)
        report = model.report_
        assert (report.k, report.why_k, report.delta) == (10, "set by the user", 0.05)
        assert report.block_sizes.tolist() == [101] * 3 + [100] * 7
        assert report.seed == 8
        assert report.excluded.size == 0
        assert report.passes == model.n_iter_ >= 2
        assert report.gradient_evaluations == report.passes * 1_003
        assert set(report.seconds) == {"prepare", "train", "combine"}
        assert all(seconds >= 0 for seconds in report.seconds.values())
        assert report.converged
        assert report.distances.shape == (10,)
        assert np.sort(report.distances)[5] == pytest.approx(report.radius)
        assert report.validation_risk is None
        assert report.theorem.startswith("none: Theorems 1 and 2 need k ≥ 24")

    @pytest.mark.parametrize("kind", RV)
    def test_of_validation(self, kind):
        X, y = data(kind, n=2_500)
        model = kind(random_state=8).fit(X, y)
        report = model.report_
        assert report.k == len(report.block_sizes) == 5
        assert "k(δ) = 5" in report.why_k
        assert report.block_sizes.sum() == 1_250
        assert report.best == model.best_index_
        assert np.array_equal(report.validation_risk, model.validation_risk_)
        assert report.radius is None
        assert "Lemma boost_conf_unbounded" in report.theorem
        assert "Theorem 3" in report.theorem

    def test_reasons_for_k(self):
        reasons = {
            100: (4, "fewer than k"),
            1_000: (40, "more while"),
            20_000: (96, "times 4"),
        }
        for n, (k, words) in reasons.items():
            X, y = data(n=n)
            report = DCSGDRegressor(random_state=0, max_iter=1).fit(X, y).report_
            assert report.k == k
            assert words in report.why_k
        assert "Lemma boost_conf_sc" in report.theorem

    def test_theorem_says_what_is_outside(self):
        X, y = data(n=3_000)
        assert "centroid" in DCSGDRegressor(merge="centroid", k=30).fit(X, y).report_.theorem
        assert "none" in RVSGDRegressor(k=2).fit(X, y).report_.theorem
        assert "none" in RVSGDRegressor(delta=0.5, k=9).fit(X, y).report_.theorem

    def test_passes_as_asked(self):
        X, y = data()
        model = DCSGDRegressor(max_iter=3, k=4, random_state=0).fit(X, y)
        assert model.n_iter_ == model.report_.passes == 3
        assert model.t_ == 300

    @every_estimator
    def test_html_escapes(self, kind):
        X, y = data(kind)
        model = kind(k=3, random_state=0).fit(X, y)
        object.__setattr__(model.report_, "why_k", "<script>alert('k')</script>")
        assert "<script>" not in model.report_._repr_html_()
        assert re.search("&lt;script&gt;", model.report_._repr_html_())


def _excess_log_losses(seed):
    """Of DC-SGD and of logistic regression, three classes, log-normal features."""
    rng, truth = np.random.default_rng(seed), np.random.default_rng(3).standard_normal((10, 3))
    X = rng.lognormal(0.0, 0.75, (25_000, 10)) - 1.3
    p = special.softmax(X @ truth, axis=1)
    y = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)
    rows, test, q = X[:5_000], X[5_000:], p[5_000:]
    models = (DCSGDClassifier(random_state=seed), LogisticRegression(max_iter=1_000))
    return [
        np.mean((q * np.log(q / model.fit(rows, y[:5_000]).predict_proba(test))).sum(axis=1))
        for model in models
    ]
