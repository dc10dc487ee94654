"""RobustClassifier as a user meets it, and its fits against scikit-learn."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse, special
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import tailproof as tp
from tailproof import RobustClassifier
from tailproof.estimators.robust_classifier.fits import (
    FITS,
    LabelledRows,
    minimise,
    relative_leverage,
    ridge_for_slopes,
)

DEALT = "rows are dealt to folds at random: a row of weight 2 is in one fold, its two copies may be in two"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": DEALT,
    "check_sample_weight_equivalence_on_sparse_data": DEALT,
}


@parametrize_with_checks([RobustClassifier()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn(estimator, check):
    check(estimator)


def data(n=1_000, d=3, classes=2, seed=0, spoilt=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    truth = np.random.default_rng(classes).standard_normal((d, classes))
    y = np.argmax(X @ truth + rng.gumbel(size=(n, classes)), axis=1)
    X[:spoilt] *= 10
    y[:spoilt] = np.argmin(X[:spoilt] @ truth, axis=1)
    return X, y, truth


def rows_of(X, y, classes):
    Y = (y > 0).astype(float)[:, None] if classes == 2 else np.eye(classes)[y]
    return LabelledRows(X, Y, np.ones(len(y)), relative_leverage(X), True)


def excess(model, truth, seed=99):
    return excess_on(np.random.default_rng(seed).standard_normal((5_000, len(truth))), model, truth)


def excess_on(X, model, truth):
    log_p = special.log_softmax(X @ truth, axis=1)
    log_q = np.log(np.maximum(model.predict_proba(X), 1e-12))
    return np.mean((np.exp(log_p) * (log_p - log_q)).sum(axis=1))


class TestFits:
    @given(st.integers(0, 1_000), st.sampled_from([2, 3]))
    @settings(max_examples=15)
    def test_gradients_are_those_of_the_losses(self, seed, classes):
        X, y, _ = data(60, 2, classes, seed)
        rows = rows_of(X, y, classes)
        theta = np.random.default_rng(seed).standard_normal((3, rows.Y.shape[1]))
        Z = np.column_stack([X, np.ones(len(y))])
        exact = Z.T @ rows.residuals(theta)
        slow = optimize.approx_fprime(
            theta.ravel(), lambda t: rows.losses(t.reshape(theta.shape)).sum(), 1e-7
        )
        np.testing.assert_allclose(exact.ravel(), slow, atol=1e-3)

    @pytest.mark.parametrize("classes", [2, 3])
    def test_plain_is_logistic_regression(self, classes):
        X, y, _ = data(500, 3, classes)
        rows = rows_of(X, y, classes)
        theta = minimise(rows, 1.0, np.zeros((4, rows.Y.shape[1])))
        exact = LogisticRegression(tol=1e-8, max_iter=1_000).fit(X, y)
        np.testing.assert_allclose(theta[:-1].T, exact.coef_, atol=2e-3)

    @pytest.mark.parametrize("name", list(FITS))
    @pytest.mark.parametrize("classes", [2, 3])
    def test_every_fit_knows_the_truth_on_clean_rows(self, name, classes):
        X, y, truth = data(4_000, 3, classes)
        rows = rows_of(X, y, classes)
        theta = FITS[name](rows, np.zeros((4, rows.Y.shape[1])))
        slopes = truth[:, 1:] - truth[:, :1] if classes == 2 else truth - truth.mean(axis=1, keepdims=True)
        found = theta[:-1] - theta[:-1].mean(axis=1, keepdims=True) * (classes > 2)
        # Penalties shorten slopes; the direction is right for all.
        assert np.corrcoef(found.ravel(), slopes.ravel())[0, 1] > 0.97
        if "ridge" not in name:
            assert np.abs(found - slopes).max() < 0.4

    @pytest.mark.parametrize("classes", [2, 3])
    def test_the_ridge_is_one_for_short_slopes_and_weaker_for_long_ones(self, classes):
        X, y, _ = data(2_000, 3, classes)
        start = np.zeros((4, rows_of(X, y, classes).Y.shape[1]))
        noise = np.random.default_rng(1).integers(classes, size=len(y))
        assert ridge_for_slopes(rows_of(X, noise, classes), start) == 1.0
        long = rows_of(X / 100.0, y, classes)
        first = ridge_for_slopes(rows_of(X / 10.0, y, classes), start)
        assert 0.0 < ridge_for_slopes(long, start) < first < 1.0

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_constant_columns_do_not_change_the_ridge(self, form):
        X, y, _ = data(500, 3, 2)
        start = np.zeros((6, 1))
        alone, beside = (
            replace(rows_of(X, y, 2), Z=form(Z)) for Z in (X, np.column_stack([X, np.ones((500, 2))]))
        )
        assert ridge_for_slopes(beside, start) == pytest.approx(ridge_for_slopes(alone, start[:4]), rel=1e-3)

    def test_one_or_two_slopes_of_few_rows_do_not_look_long(self):
        ours, plain = [], []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            X, truth = rng.standard_normal((60, 2)), np.array([[-1.5, 0.0], [1.3, 0.0]])
            y = np.argmax(X @ truth + rng.gumbel(size=(60, 2)), axis=1)
            ours.append(excess(RobustClassifier(random_state=0).fit(X, y), truth))
            plain.append(excess(LogisticRegression().fit(X, y), truth))
        assert np.mean(ours) < 1.15 * np.mean(plain)

    @pytest.mark.parametrize("classes", [2, 3])
    def test_a_ridge_for_separable_classes_is_not_zero(self, classes):
        X = np.arange(60.0)[:, None] - 30.0
        y = np.digitize(X[:, 0], np.linspace(-30, 30, classes + 1)[1:-1])
        rows = rows_of(X, y, classes)
        assert ridge_for_slopes(rows, np.zeros((2, rows.Y.shape[1]))) > 1e-3


class TestModel:
    @pytest.mark.parametrize("classes", [2, 3])
    def test_honest_heavy_tails_cost_nothing(self, classes):
        # A ridge of one row in scaled columns has 3 to 4.5 times the excess here.
        truth, found = np.random.default_rng(classes).standard_normal((5, classes)), []
        for seed in range(6):
            rng = np.random.default_rng(seed)
            X, new = (rng.lognormal(0.0, 1.5, (rows, 5)) - 3.0 for rows in (1_000, 5_000))
            y = np.argmax(X @ truth + rng.gumbel(size=(len(X), classes)), axis=1)
            models = (RobustClassifier(random_state=0), LogisticRegression(max_iter=1_000))
            found.append([excess_on(new, model.fit(X, y), truth) for model in models])
        ours, plain = np.median(found, axis=0)
        assert ours < 1.3 * plain

    @pytest.mark.parametrize("classes", [2, 3])
    @pytest.mark.parametrize("seed", range(3))
    def test_mislabelled_far_rows_do_not_spoil_it(self, classes, seed):
        X, y, truth = data(1_000, 4, classes, seed, spoilt=20)
        ours, plain = (
            excess(model.fit(X, y), truth)
            for model in (RobustClassifier(random_state=0), LogisticRegression())
        )
        assert ours < 0.15 * plain

    @pytest.mark.parametrize("classes", [2, 3])
    def test_clean_rows_lose_nothing(self, classes):
        ratios = []
        for seed in range(4):
            X, y, truth = data(1_000, 4, classes, seed)
            ours = excess(RobustClassifier(random_state=0).fit(X, y), truth)
            ratios.append(ours / excess(LogisticRegression().fit(X, y), truth))
        assert np.median(ratios) < 1.2

    def test_many_far_rows_judge_too(self):
        rng = np.random.default_rng(0)
        X = rng.lognormal(0, 1.5, (1_000, 2))
        y = X[:, 0] + rng.logistic(size=1_000) > 1
        model = RobustClassifier(random_state=0).fit(X, y)
        assert model.report_.compared == 1_000
        assert model.score(X, y) > 0.6

    def test_units_of_the_columns(self):
        X, y, _ = data()
        a, b = (
            RobustClassifier(random_state=0).fit(Z, y) for Z in (X, X * [1e-6, 1.0, 1e6] + [0, 100, -1e6])
        )
        np.testing.assert_allclose(
            b.predict_proba(X * [1e-6, 1.0, 1e6] + [0, 100, -1e6]), a.predict_proba(X), atol=1e-2
        )

    def test_sparse_is_dense(self):
        X, y, _ = data()
        X[np.abs(X) < 1] = 0
        a = RobustClassifier(random_state=0).fit(X, y)
        b = RobustClassifier(random_state=0).fit(sparse.csr_array(X), y)
        np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(sparse.csr_array(X)), atol=0.05)

    def test_zero_weight_is_absence(self):
        X, y, _ = data(400)
        weights = np.r_[np.ones(300), np.zeros(100)]
        a = RobustClassifier(random_state=0).fit(X, y, weights)
        b = RobustClassifier(random_state=0).fit(X[:300], y[:300], np.ones(300))
        np.testing.assert_allclose(a.coef_, b.coef_)

    @pytest.mark.parametrize("n", [4, 30])
    def test_few_rows_are_fitted_plainly(self, n):
        X, y, _ = data(n)
        y[:2] = [0, 1]
        report = RobustClassifier(random_state=0).fit(X, y).report_
        assert report.folds == 0
        assert "too few" in report.why
        assert "nan" not in str(report).replace("nance", "")

    def test_labels_of_any_type_and_a_file(self, tmp_path):
        X, y, _ = data(300, 3, 3)
        names = np.array(["low", "middle", "high"])[y]
        model = RobustClassifier(random_state=0).fit(X, names)
        assert set(model.predict(X)) <= set(names)
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
        tp.save(model, tmp_path / "model")
        np.testing.assert_array_equal(tp.load(tmp_path / "model").predict(X), model.predict(X))

    def test_one_class_is_an_error(self):
        with pytest.raises(ValueError, match="at least 2 classes"):
            RobustClassifier().fit(np.ones((5, 1)), np.zeros(5))


def test_values_too_small_for_coefficients_are_named():
    X, y, _ = data(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"values of X are so small .* multiply columns by a constant"):
            RobustClassifier(random_state=0).fit(X * 1e-320, y)
        assert np.isfinite(RobustClassifier(random_state=0).fit(X * 1e-300, y).coef_).all()


@pytest.mark.parametrize("kind", [tp.RobustClassifier, tp.RGDClassifier, tp.RGDRegressor, tp.RobustRegressor])
def test_no_requests_for_a_method_that_is_not_there(kind):
    assert not hasattr(kind(), "partial_fit")
    assert not hasattr(kind(), "set_partial_fit_request")
    assert hasattr(kind(), "set_fit_request")


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    X, y, _ = data(200)
    axes = RobustClassifier(random_state=0).fit(X, y).plot()
    assert [label.get_text().removesuffix(" *") for label in axes.get_yticklabels()] in (
        list(FITS),
        list(FITS)[::-1],
    )


def test_weights_that_are_words_are_named():
    X, y, _ = data(60)
    with pytest.raises(ValueError, match=r"^sample_weight must be numbers, not words such as 'a'$"):
        RobustClassifier().fit(X, y, sample_weight=np.full(60, "a"))


@pytest.mark.parametrize(
    "heavy", [lambda rng: rng.standard_t(3, (1_000, 5)), lambda rng: rng.lognormal(0, 1, (1_000, 5))]
)
def test_mislabelled_far_rows_beside_heavy_tailed_features(heavy):
    """More than 5% of the rows lie beyond 5 median leverages, honest ones among them."""
    rng = np.random.default_rng(90_001)
    X, truth = heavy(rng), np.array([1.0, -1.0, 0.5, -0.5, 0.8])
    y = X @ truth + rng.logistic(size=1_000) > 0
    X[:20] *= 10
    y[:20] = X[:20] @ truth < 0
    robust, plain = RobustClassifier(random_state=0).fit(X, y), LogisticRegression().fit(X, y)
    assert robust.report_.compared == 950
    errors = [np.abs(model.coef_[0] - truth).max() for model in (robust, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_honest_far_rows_of_heavy_tailed_features_judge():
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, (1_000, 5))
    y = X.sum(axis=1) + rng.logistic(size=1_000) > 0
    assert RobustClassifier(random_state=0).fit(X, y).report_.compared == 1_000
