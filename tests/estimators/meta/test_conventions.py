"""What both meta-estimators promise: scikit-learn's checks, kinds of input, weights, rare classes."""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from joblib import parallel_config
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from meta_models import FailsOn, both, classification, regression
from tailproof import DivideAndConquer, RobustValidation


# Merging and validating, regressors and classifiers, alone and in pipelines, without missing values and with.
@parametrize_with_checks(
    [
        DivideAndConquer(make_pipeline(StandardScaler(), Ridge())),
        DivideAndConquer(LogisticRegression()),
        RobustValidation(DecisionTreeRegressor(max_depth=5)),
        RobustValidation(make_pipeline(StandardScaler(), LogisticRegression())),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


@both
def test_types_and_delegation(kind):
    X, y = regression()
    Xc, yc = classification()
    assert is_regressor(kind(LinearRegression()))
    assert is_classifier(kind(LogisticRegression()))
    assert not hasattr(kind(LinearRegression()), "predict_proba")
    model = kind(LogisticRegression(), random_state=0).fit(Xc, yc)
    assert model.predict_proba(Xc).shape == (600, 2)
    assert np.allclose(model.predict_log_proba(Xc), np.log(model.predict_proba(Xc)))
    assert model.classes_.tolist() == [0, 1]
    assert model.score(Xc, yc) == np.mean(model.predict(Xc) == yc) > 0.7
    assert model.n_features_in_ == 3
    with pytest.raises(ValueError, match="neither"):
        kind(KMeans()).fit(X, y)
    with pytest.raises(ValueError, match="precomputed"):
        kind(SVC(kernel="precomputed")).fit(X, yc)


@both
def test_several_outputs(kind):
    X, y = regression()
    Y = np.column_stack([y, -1e6 * y])
    model = kind(LinearRegression(), k=6, random_state=0).fit(X, Y)
    assert model.predict(X).shape == (600, 2)
    assert np.allclose(model.predict(X)[:, 1], -1e6 * model.predict(X)[:, 0], rtol=1e-4, atol=1)
    with pytest.raises(ValueError, match=r"1d array|1-dimensional|y should be"):
        kind(LogisticRegression()).fit(X, np.column_stack([y > 0, y > 1]).astype(int))


@both
class TestInput:
    def test_frames_and_lists(self, kind):
        X, y = regression()
        plain = kind(LinearRegression(), random_state=0).fit(X, y).predict(X)
        for frame in (pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))):
            model = kind(LinearRegression(), random_state=0).fit(frame, y)
            assert np.allclose(model.predict(frame), plain)
            assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        assert np.allclose(
            kind(LinearRegression(), random_state=0).fit(X.tolist(), list(y)).predict(X), plain
        )
        with pytest.raises(ValueError, match="feature names"):
            model.predict(pd.DataFrame(X, columns=list("xyz")))

    def test_sparse(self, kind):
        X, y = regression()
        X = sparse.csr_array(np.where(np.abs(X) > 1, X, 0.0))
        assert kind(Ridge(), random_state=0).fit(X, y).predict(X).shape == (600,)

    def test_clone_pickle_and_parameters(self, kind):
        X, y = regression()
        model = kind(Ridge(alpha=2.0), random_state=0).fit(X, y)
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
        again = clone(model)
        assert not hasattr(again, "estimator_")
        assert again.get_params()["estimator__alpha"] == 2.0
        assert np.array_equal(again.fit(X, y).predict(X), model.predict(X))
        with pytest.raises(ValueError, match="'k' parameter"):
            kind(Ridge(), k=0).fit(X, y)

    def test_jobs_and_backends_do_not_matter(self, kind):
        X, y = regression()
        inner = make_pipeline(StandardScaler(), Ridge(solver="sag", max_iter=20, tol=1e-2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = kind(inner, k=4, random_state=0).fit(X, y).predict(X)
            with parallel_config(backend="threading", n_jobs=2):
                assert np.array_equal(kind(inner, k=4, random_state=0).fit(X, y).predict(X), plain)
            if kind is DivideAndConquer:  # processes take long to start: once is enough
                assert np.array_equal(kind(inner, k=4, random_state=0, n_jobs=2).fit(X, y).predict(X), plain)

    def test_fits_run_where_joblib_says(self, kind):
        used = []

        class Recording(joblib._parallel_backends.SequentialBackend):
            def configure(self, n_jobs=1, parallel=None, **kwargs):
                used.append(n_jobs)
                return super().configure(n_jobs, parallel, **kwargs)

        joblib.register_parallel_backend("recording", Recording)
        with parallel_config(backend="recording", n_jobs=1):
            kind(Ridge(), k=4, random_state=0).fit(*regression())
        assert used

    def test_search_and_pipeline(self, kind):
        X, y = regression()
        search = GridSearchCV(kind(Ridge(), random_state=0), {"estimator__alpha": [1.0, 1e6], "k": [2, 4]})
        assert search.fit(X, y).best_params_["estimator__alpha"] == 1.0
        assert cross_val_score(make_pipeline(StandardScaler(), kind(Ridge())), X, y).mean() > 0.5

    def test_bad_input(self, kind):
        X, y = regression()
        model = kind(LinearRegression(), k=5, random_state=0)
        with pytest.raises(ValueError, match="at least as many rows"):
            kind(LinearRegression(), k=700).fit(X, y)
        bad = X.copy()
        bad[3, 1] = np.nan
        with pytest.raises(ValueError, match="contains NaN"):
            model.fit(bad, y)
        with pytest.raises(ValueError, match="y contains NaN"):
            model.fit(X, np.where(np.arange(600) == 4, np.nan, y))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(X, y[:-1])
        with pytest.raises(ValueError, match="LinearRegression is a regressor, and y holds text"):
            model.fit(X, np.where(y > 0, "yes", "no"))
        with pytest.raises(sklearn.exceptions.NotFittedError):
            model.predict(X)

    def test_missing_values_where_the_estimator_takes_them(self, kind):
        X, y = regression(300)
        X[::7, 1] = np.nan
        inner = HistGradientBoostingRegressor(max_iter=3)
        if kind is RobustValidation:
            assert kind(inner, random_state=0).fit(X, y).predict(X).shape == (300,)

    def test_some_blocks_fail(self, kind):
        X, y = regression()
        X[5, 0] = 1e3
        model = kind(FailsOn(100), k=6, random_state=0, drop_glitches=False)
        with pytest.warns(FitFailedWarning, match=r"of . blocks failed .* block \d: RuntimeError: too large"):
            model.fit(X, y)
        assert model.report_.excluded.size >= 1
        assert np.allclose(model.predict(np.eye(3)), 2 + np.arange(1.0, 4), atol=1.0)

    def test_all_blocks_fail(self, kind):
        with pytest.raises(RuntimeError, match="too large") as caught:
            kind(FailsOn(-100), k=6).fit(*regression())
        assert "in block 0; all" in caught.value.__notes__[0]


@both
class TestWeights:
    def test_zero_is_absence(self, kind):
        X, y = regression()
        weights = np.r_[np.zeros(100), np.ones(500)]
        model = kind(Ridge(), random_state=0)
        given = model.fit(X, y, sample_weight=weights).predict(X)
        assert np.allclose(given, model.fit(X[100:], y[100:]).predict(X))

    def test_weights_reach_every_block(self, kind):
        X, y = regression()
        y = np.where(np.arange(600) % 2, y, y + 100)
        weights = np.where(np.arange(600) % 2, 1.0, 1e-9)
        for inner in (LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())):
            model = kind(inner, k=5, random_state=0).fit(X, y, sample_weight=weights)
            assert np.abs(model.predict(X) - 2 - X @ [1, 2, 3]).max() < 5

    def test_routing(self, kind):
        X, y = regression()
        weights = np.where(np.arange(600) % 2, 1.0, 1e-9)
        with sklearn.config_context(enable_metadata_routing=True):
            asked = Ridge().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
            for inner in (asked, make_pipeline(StandardScaler(), asked)):
                if inner is not asked:
                    inner[0].set_fit_request(sample_weight=False)
                model = kind(inner, k=4, random_state=0).fit(X, y, sample_weight=weights)
                with sklearn.config_context(enable_metadata_routing=False):
                    plain = kind(clone(inner), k=4, random_state=0).fit(X, y, sample_weight=weights)
                assert np.allclose(model.predict(X), plain.predict(X))
            search = GridSearchCV(kind(asked), {"k": [2, 4]}).fit(X, y, sample_weight=weights)
            assert search.best_params_["k"] in (2, 4)
            with pytest.raises(ValueError, match="sample_weight"):
                kind(Ridge()).fit(X, y, sample_weight=weights)

    def test_refused(self, kind):
        X, y = regression()
        with pytest.raises(ValueError, match=r"zero|positive"):
            kind(Ridge()).fit(X, y, sample_weight=np.zeros(600))
        with pytest.raises(ValueError, match=r"[Nn]egative"):
            kind(Ridge()).fit(X, y, sample_weight=-np.ones(600))
        with pytest.raises(ValueError, match="takes no sample_weight"):
            kind(KNeighborsRegressor()).fit(X, y, sample_weight=np.ones(600))


@both
class TestRareClasses:
    def test_every_block_has_every_class(self, kind):
        X, y = classification()
        y = np.where(np.arange(600) < 12, 2, y)
        model = kind(LogisticRegression(), k=6, random_state=0).fit(X, y)
        assert model.classes_.tolist() == [0, 1, 2]
        assert model.report_.excluded.size == 0

    def test_too_rare(self, kind):
        X, y = classification()
        # Two training rows of the rarest class for either: RobustValidation holds half of them out.
        y = np.where(np.arange(600) < (2 if kind is DivideAndConquer else 4), 2, y)
        with pytest.raises(ValueError, match=r"class 2 has"):
            kind(LogisticRegression(), k=6).fit(X, y)
        model = kind(LogisticRegression(), random_state=0).fit(X, y)
        assert model.report_.k == 2
        assert "rarest class" in model.report_.why_k
