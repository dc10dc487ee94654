"""The contamination mode: what a minority cannot do, and that it is never chosen silently."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.core.populations import TwoPopulationsWarning
from tailproof.diagnose import diagnose
from tailproof.estimators.robust_regressor.majority import bad_leverage

N, D = 400, 4


def corrupted(share, kind, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    y = 3.0 + X.sum(axis=1) + rng.standard_normal(N)
    wrong = np.arange(int(share * N))
    if kind == "cluster":
        X[wrong], y[wrong] = 10 + rng.standard_normal((wrong.size, D)), -100.0
    elif kind == "one column":
        X[wrong, 0] += 10
        y[wrong] = -10 * X[wrong, 0]
    elif kind == "target":
        y[wrong] = 1e12
    else:
        X[wrong], y[wrong] = 3.0, -10.0
    return X, y, wrong


def fitted(X, y, **settings):
    return tp.RobustRegressor(contamination=0.25, random_state=0, **settings).fit(X, y)


@pytest.mark.parametrize("kind", ["cluster", "one column", "target", "close"])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_minority_has_no_say(kind, share):
    X, y, wrong = corrupted(share, kind)
    model = fitted(X, y)
    clean = LinearRegression().fit(np.delete(X, wrong, axis=0), np.delete(y, wrong))
    assert np.linalg.norm(model.coef_ - clean.coef_) < 0.15
    assert model.intercept_ == pytest.approx(clean.intercept_, abs=0.1)
    assert np.all(model.row_weights_[wrong] < 0.01)
    summary = model.summary()
    assert np.mean((summary.low <= 1) & (summary.high >= 1)) >= 0.75
    assert summary.intercept.se < 0.1


def test_clean_normal_data_cost_little():
    errors = []
    for seed in range(3):
        X, y, _ = corrupted(0.0, "close", seed)
        plain = LinearRegression().fit(X, y)
        errors.append([np.sum((model.coef_ - 1) ** 2) for model in (fitted(X, y), plain)])
    ours, plain = np.sum(errors, axis=0)
    assert ours < 1.2 * plain


@pytest.mark.parametrize(("by", "scale"), [(1e-8, 1e12), (1e6, 1e-8)])
def test_equivariant(by, scale):
    X, y, _ = corrupted(0.2, "cluster")
    model, other = fitted(X, y), fitted(by * X, scale * y + 5 * scale)
    np.testing.assert_allclose(other.coef_, model.coef_ * scale / by, rtol=1e-6)
    assert other.intercept_ == pytest.approx(scale * (model.intercept_ + 5), rel=1e-6)


def test_sparse_weighted_and_rare_columns():
    X, y, wrong = corrupted(0.1, "cluster")
    X = np.column_stack([X, np.arange(N) == 300, np.ones(N), X[:, 0]])
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N)
    dense = tp.RobustRegressor(contamination=0.25, random_state=0).fit(X, y, sample_weight=weights)
    thin = tp.RobustRegressor(contamination=0.25, random_state=0).fit(
        sparse.csr_array(X), y, sample_weight=weights
    )
    for model in (dense, thin):
        assert np.all(np.isfinite(model.coef_))
        assert np.abs(model.coef_[1:4] - 1).max() < 0.25
        assert np.all(model.row_weights_[wrong] < 0.01)


def test_without_noise_the_majority_is_exact():
    X, y, wrong = corrupted(0.2, "cluster")
    y = np.where(np.isin(np.arange(N), wrong), y, X.sum(axis=1))
    np.testing.assert_allclose(fitted(X, y).coef_, 1.0, atol=1e-6)


def test_it_says_what_it_is():
    X, y, _ = corrupted(0.05, "cluster")
    report = fitted(X, y).report_
    assert "As asked" in report.why
    assert "not the mean" in report.guarantee
    assert "majority" not in str(tp.RobustRegressor(random_state=0).fit(X, y).report_)


def test_what_it_refuses():
    X, y, _ = corrupted(0.05, "close")
    for share in (0.0, 0.5, -1):
        with pytest.raises(ValueError, match="contamination"):
            tp.RobustRegressor(contamination=share).fit(X, y)
    with pytest.raises(ValueError, match="squared_error"):
        tp.RobustRegressor("poisson", contamination=0.1).fit(X, np.abs(y))
    with pytest.raises(ValueError, match="candidate of its own"):
        tp.RobustRegressor(candidates=[LinearRegression()], contamination=0.1).fit(X, y)
    assert tp.RobustRegressor(contamination=0.1).fit(X[:12], y[:12]).report_.folds == 0


class TestLeverage:
    @pytest.mark.parametrize("share", [0.05, 0.2])
    def test_rows_wrong_in_features_and_target_are_named(self, share):
        X, y, wrong = corrupted(share, "cluster")
        found = diagnose(X, y)
        assert found.leverage.tolist() == wrong.tolist()
        assert "high leverage" in found.recommendation

    @pytest.mark.parametrize("law", ["heavy noise", "heavy columns", "wrong targets", "many zeros"])
    def test_tails_alone_are_no_leverage(self, law):
        rng = np.random.default_rng(1)
        X = rng.standard_t(2, (N, D)) if law == "heavy columns" else rng.standard_normal((N, D))
        noise = rng.lognormal(0, 1.75, N) if law == "heavy noise" else rng.standard_normal(N)
        y = X.sum(axis=1) + noise
        if law == "wrong targets":
            y[:20] = 1e6
        if law == "many zeros":
            y = np.where(rng.random(N) < 0.1, np.abs(y), 0.0)
        assert bad_leverage(X, y).size == 0

    def test_few_rows_and_classes_are_not_looked_at(self):
        X, y, _ = corrupted(0.2, "cluster")
        assert bad_leverage(X[:30], y[:30]).size == 0
        assert diagnose(X, y > 0).leverage is None


def test_the_report_names_the_rows_that_carry_the_loss():
    X, y, _ = corrupted(0.0, "close")
    y[[7, 70]] = 1e6, -1e6
    report = tp.RobustRegressor(random_state=0, drop_glitches=False).fit(X, y).report_
    assert sorted(report.leading_rows[:2].tolist()) == [7, 70]
    assert report.leading_shares[:2].sum() > 0.99
    assert np.all(np.diff(report.leading_shares) <= 0)
    assert "two readings differ" in str(report)
    calm = tp.RobustRegressor(random_state=0).fit(*corrupted(0.0, "close")[:2]).report_
    assert "two readings" not in str(calm)


def test_intervals_say_that_they_are_about_the_majority():
    X, y, _ = corrupted(0.05, "cluster")
    assert "majority, which is not the mean" in str(fitted(X, y).summary())


@pytest.mark.parametrize(
    ("share", "sentence"),
    [(0.01, "Rows left out are taken for errors; if they are draws"), (0.05, "If such rows are draws")],
)
def test_the_report_has_both_readings_of_rows_that_stand_apart(share, sentence):
    X, y, wrong = corrupted(share, "target")
    y[wrong] = 1e3
    with pytest.warns(TwoPopulationsWarning):
        words = str(tp.RobustRegressor(random_state=0).fit(X, y).report_)
    assert sentence in words
    assert "the two readings differ" in words


@pytest.mark.parametrize("X", [np.ones((1, 2)), np.array([[3.0]]), np.zeros((1, 3))])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_one_row_is_a_majority(X, fit_intercept):
    model = tp.RobustRegressor(contamination=0.2, fit_intercept=fit_intercept).fit(X, [2.0])
    predicted = 2.0 if fit_intercept or X.any() else 0.0
    assert model.predict(X)[0] == pytest.approx(predicted, rel=1e-6)
