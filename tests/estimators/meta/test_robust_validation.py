"""RobustValidation: the block's model with the least robust risk."""

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

from meta_models import FailsOn, classification, regression
from tailproof import RobustValidation


class TestRobustValidation:
    def test_too_many_blocks_for_the_rows_that_train(self):
        with pytest.raises(ValueError, match="300 of n_samples=600 train"):
            RobustValidation(Ridge(), k=400).fit(*regression())

    def test_winner_has_least_risk(self):
        X, y = regression()
        model = RobustValidation(DecisionTreeRegressor(max_depth=3), k=4, random_state=0).fit(X, y)
        assert len(model.candidates_) == model.validation_risk_.size == 5
        assert model.estimator_ is model.candidates_[model.best_index_]
        assert model.best_index_ == np.argmin(model.validation_risk_)
        low, high = model.validation_interval_.T
        assert np.all((low < model.validation_risk_) & (model.validation_risk_ < high))
        assert len(RobustValidation(Ridge(), k=4, whole=False).fit(X, y).candidates_) == 4

    def test_intervals_cover_the_risk_of_squared_log_normal_noise(self):
        risk, covers = 0.5 * (np.exp(2 * 1.75**2) - np.exp(1.75**2)), []
        for seed in range(40):
            rng = np.random.default_rng(seed)
            X, y = rng.standard_normal((2_000, 1)), rng.lognormal(0, 1.75, 2_000)
            inner = DummyRegressor(strategy="constant", constant=np.exp(1.75**2 / 2))
            model = RobustValidation(inner, k=1, random_state=seed).fit(X, y)
            low, high = model.validation_interval_[0]
            assert (model.report_.validation_low[0], model.report_.validation_high[0]) == (low, high)
            covers.append(low <= risk <= high)
        assert np.mean(covers) >= 0.9

    @pytest.mark.parametrize("loss", ["absolute_error", "huber", lambda y, p: np.abs(y - p)])
    def test_losses(self, loss):
        model = RobustValidation(Ridge(), loss=loss, random_state=0).fit(*regression())
        assert np.isfinite(model.validation_risk_).all()

    @pytest.mark.parametrize(
        ("loss", "words"),
        [
            (lambda y, p: np.mean(y - p), "one number per row"),
            (lambda y, p: (y - p)[:, None], "one number per row"),
            (lambda y, p: np.full(len(y), np.nan), "NaN for 300 of 300 rows"),
            (lambda y, p: np.full(len(y), "a"), "must return numbers"),
            ("nonsense", "'loss' parameter"),
        ],
    )
    def test_bad_losses(self, loss, words):
        with pytest.raises(ValueError, match=words):
            RobustValidation(Ridge(), loss=loss, random_state=0).fit(*regression())

    def test_the_report_says_where_intervals_cannot_be_relied_on(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 2))
        noise = {"light": rng.uniform(-1, 1, 2_000), "heavy": rng.standard_t(1.8, 2_000)}
        found = {
            name: RobustValidation(LinearRegression(), random_state=0).fit(X, X[:, 0] + u).report_
            for name, u in noise.items()
        }
        assert found["light"].caution is None
        assert "6 of 6 candidates may have an infinite variance" in str(found["heavy"])
        assert "The losses of 6 of 6" in " ".join(found["heavy"].verdict())

    def test_predictions_of_another_length_are_named(self):
        class Short(LinearRegression):
            def predict(self, X):
                return super().predict(X)[:-1]

        X, y = regression()
        with pytest.raises(
            ValueError, match=r"predict of Short returned shape \(299,\) for targets of shape"
        ):
            RobustValidation(Short()).fit(X, y)

    def test_failed_candidates_have_infinite_risk(self):
        X, y = regression()
        X[5:9, 0] = 1e3
        with pytest.warns(FitFailedWarning):
            model = RobustValidation(FailsOn(100), k=6, random_state=1, drop_glitches=False).fit(X, y)
        failed = [j for j, candidate in enumerate(model.candidates_) if candidate is None]
        assert failed == model.report_.excluded.tolist()
        assert np.isinf(model.validation_risk_[failed]).all()
        assert failed
        assert model.best_index_ not in failed

    @pytest.mark.parametrize(
        "inner",
        [LGBMRegressor(n_estimators=5, verbose=-1), HistGradientBoostingRegressor(max_iter=5)],
        ids=lambda model: type(model).__name__,
    )
    def test_boosting(self, inner):
        X, y = regression(400)
        model = RobustValidation(inner, random_state=0).fit(X, y)
        assert np.array_equal(model.predict(X), clone(model).fit(X, y).predict(X))

    def test_boosted_classifier(self):
        X, y = classification(400, classes=3)
        model = RobustValidation(HistGradientBoostingClassifier(max_iter=5), random_state=0).fit(X, y)
        assert model.predict_proba(X).shape == (400, 3)

    def test_without_probabilities(self):
        model = RobustValidation(LinearSVC(), random_state=0).fit(*classification())
        assert np.all(model.validation_risk_ <= 1)

    def test_too_few_rows(self):
        with pytest.raises(ValueError, match="n_samples=1"):
            RobustValidation(Ridge()).fit([[1.0]], [1.0])
        with pytest.raises(ValueError, match="hold any out"):
            RobustValidation(LogisticRegression()).fit([[1.0], [2.0]], [0, 1])
