import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from joblib import parallel_config
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from tailproof import DCSGDRegressor, RobustRegressor
from tailproof.core.means import catoni
from tailproof.core.validate import validate_with_safe_intervals
from tailproof.estimators.row_losses import row_losses
from tailproof.model_selection.compare import compare, make_robust_scorer, robust_cross_validate, robust_refit


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, X.sum(axis=1) + rng.standard_t(2.5, n)


class TestScorer:
    def test_minus_the_robust_mean_of_the_losses(self):
        X, y = data()
        model = LinearRegression().fit(X, y)
        expected = -catoni((y - model.predict(X)) ** 2 / 2)
        assert np.isclose(make_robust_scorer()(model, X, y), expected)
        assert make_robust_scorer("absolute_error", mean="mean")(model, X, y) == -np.mean(
            np.abs(y - model.predict(X))
        )

    def test_weights_repeat(self):
        X, y = data()
        model, counts = LinearRegression().fit(X, y), np.arange(400) % 3
        scorer = make_robust_scorer(mean="mean")
        repeated = scorer(model, np.repeat(X, counts, axis=0), np.repeat(y, counts))
        assert np.isclose(scorer(model, X, y, sample_weight=counts), repeated)

    def test_everywhere_in_scikit_learn(self):
        X, y = data()
        scorer = make_robust_scorer()
        assert cross_val_score(Ridge(), X, y, scoring=scorer).shape == (5,)
        both = cross_validate(Ridge(), X, y, scoring={"robust": scorer, "r2": "r2"})
        assert (both["test_robust"] < 0).all()
        grid = {"ridge__alpha": [1.0, 1e6]}
        search = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), grid, scoring=scorer).fit(X, y)
        assert search.best_params_ == {"ridge__alpha": 1.0}
        random = RandomizedSearchCV(Ridge(), {"alpha": [1.0, 1e6]}, n_iter=2, scoring=scorer, random_state=0)
        assert random.fit(X, y).best_params_ == {"alpha": 1.0}
        frame = pd.DataFrame(X, columns=list("abc"))
        assert np.isclose(scorer(Ridge().fit(frame, y), frame, y), scorer(Ridge().fit(X, y), X, y))
        assert pickle.loads(pickle.dumps(scorer)).delta == 0.05
        assert "catoni" in repr(scorer)

    def test_routing(self):
        X, y = data()
        weights = np.arange(400) % 3
        with sklearn.config_context(enable_metadata_routing=True):
            scorer = make_robust_scorer(mean="mean").set_score_request(sample_weight=True)
            model = Ridge().set_fit_request(sample_weight=True)
            found = cross_validate(model, X, y, scoring=scorer, params={"sample_weight": weights})
        splits = KFold(5).split(X)
        for score, (train, test) in zip(found["test_score"], splits, strict=True):
            fitted = Ridge().fit(X[train], y[train], sample_weight=weights[train])
            assert np.isclose(
                score, -np.average((fitted.predict(X[test]) - y[test]) ** 2, weights=weights[test]) / 2
            )

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"loss": "mse"}, "loss must be one of"),
            ({"mean": "mode"}, "mean must be one of"),
            ({"delta": 1.5}, "delta must lie strictly"),
        ],
    )
    def test_bad_parameters(self, given, words):
        with pytest.raises(ValueError, match=words):
            make_robust_scorer(**given)


class TestCrossValidate:
    def test_pools_the_losses_of_all_folds(self):
        X, y = data()
        found = robust_cross_validate(Ridge(), X, y, cv=KFold(4), return_estimator=True)
        expected = np.empty(400)
        for train, test in KFold(4).split(X):
            expected[test] = (Ridge().fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2 / 2
        assert np.allclose(found.losses, expected)
        ends = validate_with_safe_intervals([expected])
        assert np.allclose([found.risk, found.low, found.high], [ends.risk[0], ends.low[0], ends.high[0]])
        assert np.isclose(found.risk, catoni(expected))
        assert len(found.estimators) == 4 == found.fold_risk.size == found.fit_seconds.size
        assert np.isclose(found.fold_risk[0], catoni(expected[:100]))

    def test_repeated_rows_count_once(self):
        X, y = data()
        found = robust_cross_validate(
            Ridge(), X, y, cv=RepeatedKFold(n_splits=4, n_repeats=3, random_state=0)
        )
        assert np.isclose(found.risk, catoni(found.losses))
        some = robust_cross_validate(Ridge(), X, y, cv=ShuffleSplit(1, test_size=0.5, random_state=0))
        assert np.isnan(some.losses).sum() == 200

    def test_jobs_do_not_matter(self):
        X, y = data()
        one = robust_cross_validate(DCSGDRegressor(random_state=0), X, y)
        with parallel_config(backend="threading"):
            two = robust_cross_validate(DCSGDRegressor(random_state=0), X, y, n_jobs=2)
        assert one.risk == two.risk

    def test_weights(self):
        X, y = data()
        weights = np.where(np.arange(400) < 200, 1.0, 0.0)
        found = robust_cross_validate(
            Ridge(), X, y, sample_weight=weights, params={"sample_weight": weights + 1}
        )
        assert np.isclose(found.risk, catoni(found.losses[:200]))

    def test_says_what_it_found_and_how_far_to_trust_it(self):
        X, y = data()
        doubtful = robust_cross_validate(LinearRegression(), X, y)
        assert doubtful.in_doubt
        assert "1 of 1 model may have an infinite variance" in repr(doubtful)
        light = robust_cross_validate(LinearRegression(), X, X.sum(axis=1) + X[::-1, 0])
        assert not light.in_doubt
        assert repr(light).startswith(f"risk {light.risk:.4g}, interval {light.low:.4g} to")
        assert "\n" not in repr(light)

    def test_bad_input_in_one_sentence(self):
        X, y = data()
        with pytest.raises(TypeError, match="estimator with fit and predict; got 'ridge'"):
            robust_cross_validate("ridge", X, y)
        with pytest.raises(ValueError, match="y is needed"):
            robust_cross_validate(LinearRegression(), X, None)
        with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1; got 'a'"):
            robust_cross_validate(LinearRegression(), X, y, delta="a")

    def test_rows_of_weight_zero_do_not_count(self):
        X, y = data()
        far = np.append(y[:-1], 1e9)
        weights = np.append(np.ones(399), 0.0)
        found = robust_cross_validate(
            LinearRegression(), X, far, params={"sample_weight": weights}, sample_weight=weights
        )
        assert found.high < 100

    def test_classifiers(self):
        X, y = data()
        labels = np.where(y > 0, "yes", "no")
        assert 0 < robust_cross_validate(LogisticRegression(), X, labels).risk < 0.7
        assert robust_cross_validate(LinearSVC(), X, labels).risk < 0.4
        assert robust_cross_validate(LinearSVC(), X, labels, loss="hinge").risk > 0


class TestCompare:
    def test_table(self):
        X, y = data()
        found = compare({"line": LinearRegression(), "none": DummyRegressor()}, X, y)
        assert found.names[found.best] == "line"
        assert found.difference[0] == found.difference_low[0] == found.difference_high[0] == 0
        assert found.difference_low[1] > 0
        assert np.isclose(found.difference[1], catoni(found.losses[:, 1] - found.losses[:, 0]))
        assert np.isclose(found.risk[0], robust_cross_validate(LinearRegression(), X, y).risk)
        frame = found.to_frame()
        assert frame.index.tolist() == ["line", "none"]
        assert frame.loc["none", "risk"] == found.risk[1]
        assert "difference low" in str(found)
        assert found.in_doubt.all()
        lines = repr(found).splitlines()
        assert lines[3:] == ["", found.caution]
        assert "2 of 2 models may have an infinite variance" in found.caution

    def test_names_of_a_list(self):
        X, y = data(100)
        assert compare([Ridge(), Ridge(2.0), LinearRegression()], X, y).names == [
            "Ridge 0",
            "Ridge 1",
            "LinearRegression",
        ]

    def test_bad_input(self):
        X, y = data(100)
        with pytest.raises(ValueError, match="at least one model"):
            compare({}, X, y)
        with pytest.raises(TypeError, match="list of them; got Ridge"):
            compare(Ridge(), X, y)
        with pytest.raises(TypeError, match="every model must be an estimator with fit and predict; got 3"):
            compare({"three": 3}, X, y)
        with pytest.raises(ValueError, match="different losses by default"):
            compare([LogisticRegression(), LinearSVC()], X, y > 0)
        with pytest.raises(ValueError, match="one number per row"):
            compare([Ridge()], X, y, loss=lambda y, p: 0.0)


class TestRefit:
    def test_picks_the_winner_of_the_splits(self):
        X, y = data()
        search = GridSearchCV(
            Ridge(), {"alpha": [1e6, 1.0, 1e5]}, scoring=make_robust_scorer(), refit=robust_refit()
        ).fit(X, y)
        assert search.best_params_ == {"alpha": 1.0}
        assert search.predict(X).shape == (400,)
        assert pickle.loads(pickle.dumps(search)).best_index_ == 1

    def test_one_bad_split_of_many(self):
        noise = 0.01 * np.random.default_rng(0).standard_normal(30)
        splits = {f"split{i}_test_score": np.array([e - 1.0, -1.1, np.nan]) for i, e in enumerate(noise)}
        assert robust_refit()(splits) == 0
        splits["split3_test_score"] = np.array([-1e9, -1.1, np.nan])
        assert robust_refit()(splits) == 0
        assert robust_refit(mean="mean")(splits) == 1

    def test_bad_results(self):
        with pytest.raises(ValueError, match="no split scores"):
            robust_refit("mse")({"split0_test_score": np.zeros(2)})
        with pytest.raises(ValueError, match="every candidate failed"):
            robust_refit()({"split0_test_score": np.full(2, np.nan)})


def test_selection_under_heavy_noise_is_better_than_plain():
    """Ten polynomial degrees, log-normal noise: true excess risk of the choice, 20 draws."""
    excess = {"plain": [], "robust": []}
    grid = np.linspace(-1, 1, 200)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, 300)
        y = 8 * np.sin(3 * x) + rng.lognormal(0, 1.75, 300)
        powers = np.polynomial.legendre.legvander(x, 10)
        folds = np.arange(300) % 5
        losses = np.empty((300, 10))
        for fold in range(5):
            train, test = folds != fold, folds == fold
            for j in range(10):
                coef = np.linalg.lstsq(powers[train, : j + 2], y[train], rcond=None)[0]
                losses[test, j] = (powers[test, : j + 2] @ coef - y[test]) ** 2
        choices = {"plain": losses.mean(axis=0).argmin(), "robust": catoni(losses).argmin()}
        for rule, j in choices.items():
            coef = np.linalg.lstsq(powers[:, : j + 2], y, rcond=None)[0]
            fitted = np.polynomial.legendre.legvander(grid, j + 1) @ coef
            excess[rule].append(np.mean((fitted - 8 * np.sin(3 * grid) - np.exp(1.75**2 / 2)) ** 2))
    assert np.mean(excess["robust"]) < np.mean(excess["plain"])


def test_scorer_losses_are_those_of_row_losses():
    X, y = data()
    model = Ridge().fit(X, np.abs(y))
    for loss in ("squared_error", "huber", "pinball"):
        expected = -catoni(row_losses(model, X, np.abs(y), loss))
        assert np.isclose(make_robust_scorer(loss)(model, X, np.abs(y)), expected)


class Overflowing(DummyRegressor):
    """Predicts what no loss can hold."""

    def predict(self, X, return_std=False):
        return np.full(len(X), 1e200)


class TestInfiniteLosses:
    def test_are_never_the_best(self):
        X, y = np.ones((60, 1)), np.arange(60.0)
        with np.errstate(over="ignore"):
            found = compare({"overflow": Overflowing(), "constant": DummyRegressor()}, X, y)
        assert found.names[found.best] == "constant"
        assert found.difference.tolist() == [np.inf, 0.0]
        assert [row["model"] for row in found.rows()] == ["constant", "overflow"]

    def test_of_all_models_leave_no_verdict(self):
        X, y = np.ones((60, 1)), np.arange(60.0)
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="none can be called the best"):
            compare({"overflow": Overflowing(), "again": Overflowing()}, X, y)


def test_a_report_and_a_comparison_mean_the_same_by_risk():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 2))
    y = X[:, 0] + rng.lognormal(0, 2, 3_000)
    y[:2] += 2_000  # what the mean of most blocks of rows would not show
    model = RobustRegressor(random_state=0)
    found = compare({"robust": model}, X, y, cv=KFold(5, shuffle=True, random_state=0))
    report = model.fit(X, y).report_
    assert report.risk[report.chosen] == pytest.approx(found.risk[0], rel=0.02)
    scored = -make_robust_scorer("squared_error")(model, X, y)
    assert scored == pytest.approx(found.risk[0], rel=0.02)
