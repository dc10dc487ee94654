"""summary, predict_mean_interval and predict_interval: what they hold, for whom, and what they refuse."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp
from tailproof.core.held_out import _RIDGE, _left_out
from tailproof.core.populations import TwoPopulationsWarning

N, D = 1_500, 3
TRUE = np.array([1.0, -2.0, 0.5])


def rows(seed, law="lognormal", n=N):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    noise = rng.standard_normal(n) if law == "normal" else rng.lognormal(0, 1.75, n)
    return X, X @ TRUE + noise


def hc3(X, y):
    """Standard errors of least squares by the textbook."""
    Z = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(Z.T @ Z)
    r = y - Z @ (inverse @ Z.T @ y)
    r = r / (1 - np.einsum("ij,jk,ik->i", Z, inverse, Z))
    return np.sqrt(np.diag(inverse @ (Z * r[:, None] ** 2).T @ Z @ inverse))


def share_within(ends, y):
    return np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))


@pytest.fixture(scope="module")
def heavy():
    X, y = rows(0)
    return tp.RobustRegressor(random_state=0).fit(X, y), X, y


ESTIMATORS = {
    "robust": lambda: tp.RobustRegressor(random_state=0),
    "dc": lambda: tp.DCSGDRegressor(random_state=0),
    "meta": lambda: tp.DivideAndConquer(LinearRegression(), k=12, random_state=0, n_jobs=1),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_frame_has_a_row_for_each_coefficient_and_the_intervals_hold_them(name):
    covered = []
    for seed in range(2):
        X, y = rows(seed, "normal")
        summary = ESTIMATORS[name]().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y).summary()
        frame = summary.frame
        assert list(frame.columns) == ["estimate", "se", "low", "high"]
        assert list(frame.index) == ["a", "b", "c"]
        assert (frame["low"] < frame["estimate"]).all()
        assert (frame["estimate"] < frame["high"]).all()
        covered.append((frame["low"] <= TRUE) & (frame["high"] >= TRUE))
    assert np.mean(covered) >= 5 / 6


def test_under_normal_noise_the_errors_are_those_of_least_squares():
    X, y = rows(1, "normal")
    summary = tp.RobustRegressor(random_state=0).fit(X, y).summary()
    np.testing.assert_allclose(summary.se, hc3(X, y)[:-1], rtol=0.1)
    assert summary.intercept.se == pytest.approx(hc3(X, y)[-1], rel=0.1)


def test_one_untruncated_level_is_exactly_the_textbook():
    X, y = rows(2, "normal", n=15)
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    assert model.report_.folds == 0
    np.testing.assert_allclose(model.coefficient_errors_.se, hc3(X, y), rtol=1e-6)
    reach = stats.t.ppf(0.95, 15 - D - 1)
    summary = model.summary(delta=0.1)
    np.testing.assert_allclose(summary.high - summary.estimate, reach * summary.se, rtol=1e-6)


def test_under_heavy_tails_the_intervals_are_much_shorter_than_those_of_least_squares(heavy):
    model, X, y = heavy
    assert np.all(model.summary().se < 0.5 * hc3(X, y)[:-1])


@pytest.mark.parametrize("scale", [1e-8, 1e12])
def test_errors_follow_the_scale_of_targets_and_columns(heavy, scale):
    model, X, y = heavy
    scaled = tp.RobustRegressor(random_state=0).fit(X * [1.0, 1e3, 1e-3], scale * y)
    expected = scale * model.summary().se / [1.0, 1e3, 1e-3]
    np.testing.assert_allclose(scaled.summary().se, expected, rtol=1e-3)


def test_weights_count_as_rows_do():
    X, y = rows(3, n=300)
    twice = tp.RobustRegressor(random_state=0).fit(X, y, sample_weight=np.full(300, 2.0))
    np.testing.assert_allclose(
        twice.summary().se, tp.RobustRegressor(random_state=0).fit(X, y).summary().se, rtol=1e-6
    )


def test_the_log_link_has_relativities():
    X, _ = rows(4)
    y = np.random.default_rng(4).poisson(np.exp(0.3 * X @ TRUE)).astype(float)
    summary = tp.RobustRegressor("poisson", random_state=0).fit(X, y).summary()
    np.testing.assert_allclose(summary.frame["relativity"], np.exp(summary.estimate))
    Z = np.column_stack([X, np.ones(N)])
    mean = PoissonRegressor(alpha=0).fit(X, y).predict(X)
    fisher = np.sqrt(np.diag(np.linalg.inv((Z * mean[:, None]).T @ Z)))
    np.testing.assert_allclose(summary.se, fisher[:-1], rtol=0.15)
    assert "relativity" in str(summary)


def test_penalised_fits_have_intervals_about_the_values_without_the_pull():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 10))
    y = 0.2 * X.sum(axis=1) + rng.lognormal(0, 1.75, 60)
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    centre = model.coefficient_errors_.centre[:-1]
    assert np.linalg.norm(centre) > np.linalg.norm(model.coef_)
    assert "penalised" in str(model.summary())


def test_the_mean_of_a_row_has_the_interval_of_its_combination(heavy):
    model, X, _ = heavy
    ends = model.predict_mean_interval(X[:5], coverage=0.9)
    errors = model.coefficient_errors_
    z = np.append(X[0], 1.0)
    reach = errors.reach(0.1) * np.sqrt(z @ errors.factor.T @ errors.factor @ z)
    np.testing.assert_allclose(ends[0], [z @ errors.centre - reach, z @ errors.centre + reach])
    # Sums over the columns of sparse rows round in another order.
    kept = model.predict_mean_interval(sparse.csr_array(X[:5]), coverage=0.9)
    np.testing.assert_allclose(kept, ends, rtol=1e-13)


def test_means_of_the_log_link_stay_in_the_range_of_predictions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    model = tp.RobustRegressor(loss="poisson", random_state=0).fit(X, rng.poisson(np.exp(X[:, 0])))
    ends = model.predict_mean_interval(np.array([[60.0, 0.0]]))
    assert np.all(ends <= np.exp(model.score_range_[1]))
    assert ends[0, 0] <= model.predict(np.array([[60.0, 0.0]]))[0] <= ends[0, 1]


def test_a_pipeline_predicts_means_from_transformed_rows():
    X, y = rows(6, "normal")
    model = tp.DivideAndConquer(make_pipeline(StandardScaler(), LinearRegression()), k=8, random_state=0)
    plain = tp.DivideAndConquer(LinearRegression(), k=8, random_state=0).fit(X, y)
    ends = model.fit(100 * X, y).predict_mean_interval(100 * X[:3])
    np.testing.assert_allclose(ends, plain.predict_mean_interval(X[:3]), rtol=0.05, atol=0.02)


def test_classes_have_odds_ratios_and_no_prediction_intervals():
    X, _ = rows(7)
    y = np.array(["u", "v", "w"])[np.argmax(X + np.random.default_rng(7).gumbel(size=X.shape), axis=1)]
    model = tp.DCSGDClassifier(random_state=0).fit(X, y)
    frame = model.summary().frame
    assert len(frame) == 9
    assert "odds_ratio" in frame
    assert frame.loc["u: x0", "low"] > 0
    with pytest.raises(AttributeError, match="regressors"):
        model.predict_interval(X)
    with pytest.raises(ValueError, match="predict_proba"):
        model.predict_mean_interval(X)


PREDICTING = ESTIMATORS | {
    "tree": lambda: tp.RobustValidation(DecisionTreeRegressor(max_depth=3), random_state=0),
    "rv": lambda: tp.RVSGDRegressor(random_state=0),
}
PREDICTING.pop("meta")


@pytest.mark.parametrize("name", PREDICTING)
def test_new_targets_lie_in_their_intervals_as_often_as_asked(name):
    shares = []
    for seed in range(2):
        X, y = rows(seed)
        model = PREDICTING[name]().fit(X, y)
        new, targets = rows(100 + seed, n=4_000)
        shares.append([share_within(model.predict_interval(new, c), targets) for c in (0.5, 0.9)])
    np.testing.assert_allclose(np.mean(shares, axis=0), [0.5, 0.9], atol=0.04)


def test_skewed_noise_gets_an_interval_that_is_longer_on_its_long_side(heavy):
    model, X, _ = heavy
    low, high = model.predict_interval(X).T
    middle = model.predict(X)
    assert np.all(high - middle > 2 * (middle - low))


def test_scaled_intervals_are_longer_where_noise_is_larger():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((2_000, 2))
    y = X[:, 0] + np.exp(X[:, 0]) * rng.standard_normal(2_000)
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    plain, scaled = model.predict_interval(X), model.predict_interval(X, scaled=True)
    calm, wild = X[:, 0] < -1, X[:, 0] > 1
    assert np.ptp(np.diff(plain)) < 1e-9 * np.diff(plain).mean()
    assert np.diff(scaled[wild]).mean() > 4 * np.diff(scaled[calm]).mean()
    for some in (calm, wild):
        assert abs(share_within(scaled[some], y[some]) - 0.9) < 0.06
    assert share_within(plain[calm], y[calm]) > 0.98


def test_counts_have_no_interval_below_zero():
    X, _ = rows(9)
    y = np.random.default_rng(9).poisson(np.exp(0.3 * X @ TRUE)).astype(float)
    ends = tp.RobustRegressor("poisson", random_state=0).fit(X, y).predict_interval(X, 0.95)
    assert ends.min() == 0.0
    assert share_within(ends, y) > 0.93


def test_few_rows_cannot_promise_much():
    X, y = rows(10, n=30)
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    assert np.all(np.isinf(model.predict_interval(X, 0.99)))
    assert np.all(np.isfinite(model.predict_interval(X, 0.5)))
    with pytest.raises(ValueError, match="size of the noise"):
        model.predict_interval(X, scaled=True)


def test_what_is_not_known_is_said():
    X, y = rows(11, n=15)
    with pytest.raises(ValueError, match="held-out rows"):
        tp.RobustRegressor(random_state=0).fit(X, y).predict_interval(X)
    few = tp.DCSGDRegressor(k=2, random_state=0).fit(*rows(11))
    assert np.isnan(few.summary().se).all()
    assert "no intervals" in str(few.summary())
    with pytest.raises(ValueError, match="no intervals"):
        few.predict_mean_interval(X)
    with pytest.raises(ValueError, match="coverage must lie"):
        few.predict_interval(X, 1.0)
    few.partial_fit(*rows(12, n=100))
    assert not hasattr(few, "held_out_errors_")


def test_columns_without_information_have_finite_errors():
    X, y = rows(13, n=400)
    X = np.column_stack([X, np.ones(400), X[:, 0]])
    summary = tp.RobustRegressor(random_state=0).fit(X, y).summary()
    assert np.all(np.isfinite(summary.se))


def test_rows_that_were_truncated_weigh_less(heavy):
    model, X, y = heavy
    assert model.row_weights_.shape == (N,)
    assert np.all((model.row_weights_ >= 0) & (model.row_weights_ <= 1))
    assert model.row_weights_[np.argmax(y - model.predict(X))] == model.row_weights_.min()


def test_rows_without_weight_and_glitches_weigh_nothing():
    X, y = rows(14, "normal", n=300)
    X[5, 0] = 1e9
    weights = np.ones(300)
    weights[7] = 0.0
    with pytest.warns(TwoPopulationsWarning, match="left out as errors"):
        model = tp.RobustRegressor(random_state=0).fit(X, y, sample_weight=weights)
    assert model.row_weights_[[5, 7]].tolist() == [0.0, 0.0]
    assert np.count_nonzero(model.row_weights_) == 298


def test_a_refit_forgets_what_does_not_hold_any_more():
    X, y = rows(15, n=300)
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    tree = ("tree", DecisionTreeRegressor(max_depth=4))
    model.set_params(candidates=[tree]).fit(X, np.where(X[:, 0] > 0, 100.0, 0.0) * (X[:, 1] > 0))
    assert model.report_.candidates[model.report_.chosen] == "tree"
    assert not hasattr(model, "coefficient_errors_")
    assert not hasattr(model, "row_weights_")
    with pytest.raises(ValueError, match="not linear"):
        model.summary()
    assert model.predict_interval(X).shape == (300, 2)


@pytest.mark.parametrize("scales", [(1e8, 1.0, 1e-8), (1e-20, 1.0, 1e20)])
def test_columns_of_very_unlike_sizes_keep_their_errors(scales):
    X, y = np.random.default_rng(0).standard_normal((2, 400, 3))
    y = X.sum(axis=1) + y[:, 0]
    model = tp.RobustRegressor(random_state=0)
    alike, row = model.fit(X, y).summary().se, model.predict_mean_interval(X[:1])
    unlike = model.fit(X * scales, y).summary().se * scales
    np.testing.assert_allclose(unlike, alike, rtol=1e-6)
    np.testing.assert_allclose(model.predict_mean_interval(X[:1] * scales), row, rtol=1e-6)


@pytest.mark.parametrize("make", [tp.RobustRegressor, tp.DCSGDRegressor])
def test_coefficients_that_rows_leave_open_are_named(make):
    X, y = np.random.default_rng(0).standard_normal((2, 600, 2))
    y = X.sum(axis=1) + y[:, 0]
    said = make(random_state=0).fit(X, y).summary().notes
    assert not any("Left open" in note for note in said)
    told = make(random_state=0).fit(np.column_stack([X, X[:, 0], np.ones(600)]), y).summary().notes
    assert any("is constant or a sum of others: x0, x2, x3." in note for note in told)


@pytest.mark.parametrize("n", [600, 60_000])
def test_categories_whose_columns_add_up_to_a_constant_are_left_open(n):
    """With a share of the intercept, and of its error, no sum of their coefficients would be fixed."""
    rng = np.random.default_rng(0)
    X, regions = rng.standard_normal((n, 2)), np.eye(3)[rng.choice(3, n, p=[0.6, 0.3, 0.1])]
    y = X.sum(axis=1) + rng.lognormal(0, 1.5, n)
    told = tp.RobustRegressor(random_state=0).fit(np.column_stack([X, regions]), y).summary().notes
    assert any("a sum of others: x2, x3, x4." in note and "differences" in note for note in told)
    told = tp.RobustRegressor(random_state=0).fit(np.column_stack([X, regions[:, 1:]]), y).summary().notes
    assert not any("Left open" in note for note in told)


def test_without_noise_nothing_is_left_open():
    X = np.random.default_rng(0).standard_normal((200, 2))
    assert not any("Left open" in note for note in tp.RobustRegressor().fit(X, np.ones(200)).summary().notes)


def test_the_size_of_the_noise_is_learned_when_asked_for_and_rows_leave_no_process():
    X, y = rows(3)
    model = tp.DCSGDRegressor(random_state=0).fit(X, y)
    assert "noise" not in vars(model.held_out_errors_)
    copied = pickle.loads(pickle.dumps(model))
    assert "_sample" not in vars(copied.held_out_errors_)
    again = tp.DCSGDRegressor(random_state=0).fit(X, y)
    X[...] = np.nan  # no row of the caller is looked at any more
    for one in (copied, again):
        ends = one.predict_interval(np.zeros((1, D)), scaled=True)
        np.testing.assert_array_equal(ends, model.predict_interval(np.zeros((1, D)), scaled=True))
    assert "_sample" not in vars(again.held_out_errors_)
    with pytest.raises(AttributeError, match="nothing"):
        _ = again.held_out_errors_.nothing


def test_the_size_of_the_noise_at_a_row_is_learned_from_the_others():
    rng = np.random.default_rng(8)
    features, target = np.column_stack([rng.standard_normal((30, 4)), np.ones(30)]), rng.standard_normal(30)
    others = np.arange(30) != 7
    F, middle = features[others], target[others].mean()
    ridge = np.diag([_RIDGE] * 4 + [1e-9])
    coef = np.linalg.solve(F.T @ F + ridge, F.T @ (target[others] - middle))
    assert _left_out(features, target)[1][7] == pytest.approx(features[7] @ coef + middle, rel=1e-6)
