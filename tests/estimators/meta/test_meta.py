"""The meta-estimators as a user meets them."""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from joblib import parallel_config
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from tailproof import DivideAndConquer, RobustValidation
from tailproof.core.merge import MERGES
from tailproof.core.partition import blocks

BOTH = [DivideAndConquer, RobustValidation]
both = pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.__name__)


# LightGBM says so of every sparse array.
@pytest.mark.filterwarnings("ignore:Converting data to scipy sparse matrix")
@parametrize_with_checks(
    [kind(model) for kind in BOTH for model in (LinearRegression(), LogisticRegression())]
    + [
        DivideAndConquer(make_pipeline(StandardScaler(), Ridge())),
        RobustValidation(make_pipeline(StandardScaler(), LinearSVC())),
        RobustValidation(DecisionTreeRegressor(max_depth=5)),
        RobustValidation(DecisionTreeClassifier(max_depth=5)),
        RobustValidation(HistGradientBoostingRegressor(max_iter=40)),
        RobustValidation(LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1)),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def regression(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, 2 + X @ np.arange(1.0, d + 1) + rng.standard_t(2.5, n)


def classification(n=600, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, (X[:, :classes] + 0.5 * rng.gumbel(size=(n, classes))).argmax(axis=1)


class FailsOn(RegressorMixin, BaseEstimator):
    """A line through the data that refuses blocks with a row it does not like."""

    def __init__(self, limit=np.inf):
        self.limit = limit

    def fit(self, X, y):
        if np.max(X) > self.limit:
            raise RuntimeError(f"too large: {np.max(X):g}")
        self.inner_ = LinearRegression().fit(X, y)
        self.coef_, self.intercept_ = self.inner_.coef_, self.inner_.intercept_
        return self

    def predict(self, X):
        return np.asarray(X) @ self.coef_ + self.intercept_


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


@pytest.mark.parametrize("merge", MERGES)
def test_dc_is_the_merge_of_block_fits(merge):
    X, y = regression()
    model = DivideAndConquer(LinearRegression(), k=12, merge=merge, recentre=False, random_state=3).fit(X, y)
    fits = [LinearRegression().fit(X[b.rows], y[b.rows]) for b in blocks(600, 12, 3)]
    points = np.array([[*fit.coef_, fit.intercept_] for fit in fits])
    assert np.allclose(model.candidates_, points)
    # Columns have mean zero and scale one, nearly: the merge in scaled coordinates is close to the plain one.
    plain = MERGES[merge](points).point
    assert np.allclose([*model.coef_, model.intercept_], plain, atol=0.06)
    assert np.allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    assert model.report_.radius > 0


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_units_do_not_matter(scale):
    X, y = regression()
    units = scale * np.array([1e-2, 1.0, 1e2])
    one = DivideAndConquer(LinearRegression(), random_state=0).fit(X, y)
    other = DivideAndConquer(LinearRegression(), random_state=0).fit((X + 1) * units, y / scale)
    assert np.allclose(scale * other.predict((X + 1) * units), one.predict(X), rtol=1e-6, atol=1e-6)


def test_one_block_is_the_plain_estimator():
    X, y = regression()
    plain, model = LinearRegression().fit(X, y), DivideAndConquer(LinearRegression(), k=1).fit(X, y)
    assert np.allclose(model.coef_, plain.coef_)
    assert np.isclose(model.intercept_, plain.intercept_)


def test_skewed_noise_leaves_the_intercept_alone():
    errors = {True: [], False: []}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((4_000, 3))
        y = X.sum(axis=1) + rng.lognormal(0, 1.5, 4_000) - np.exp(1.125)
        for recentre, found in errors.items():
            model = DivideAndConquer(LinearRegression(), k=50, recentre=recentre, random_state=seed).fit(X, y)
            found.append(float(model.intercept_))
    assert np.mean(errors[False]) < -0.25
    assert abs(np.mean(errors[True])) < 0.5 * abs(np.mean(errors[False]))


@pytest.mark.parametrize("model", [HuberRegressor(), QuantileRegressor(), PoissonRegressor()], ids=str)
def test_other_targets_are_not_recentred(model):
    X, _ = regression()
    y = np.random.default_rng(1).lognormal(0.2 * X[:, 0], 1.0)
    on, off = (DivideAndConquer(model, k=6, recentre=on, random_state=0).fit(X, y) for on in (True, False))
    assert on.intercept_ == off.intercept_


@pytest.mark.parametrize("model", [Ridge(), Lasso(0.01), ElasticNet(0.01), LinearRegression()], ids=str)
def test_least_squares_and_its_like_are_recentred(model):
    X, y = regression()
    on, off = (DivideAndConquer(model, k=6, recentre=on, random_state=0).fit(X, y) for on in (True, False))
    assert on.intercept_ != off.intercept_


def test_bad_blocks_do_no_harm():
    X, y = regression(2_000)
    X[:3] *= 1e6
    y[:3] = 1e12
    model = DivideAndConquer(LinearRegression(), k=24, random_state=0).fit(X, y)
    assert np.allclose(model.coef_, [1, 2, 3], atol=0.3)
    assert abs(model.intercept_ - 2) < 0.3
    assert 1 <= model.report_.stand_out.size <= 3
    assert abs(LinearRegression().fit(X, y).coef_ - [1, 2, 3]).max() > 10


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", [LogisticRegression(), LinearSVC(), RidgeClassifier()], ids=str)
def test_classes_are_merged_jointly(model, classes):
    X, y = classification(classes=classes)
    labels = np.array(["a", "b", "c"])[y]
    merged = DivideAndConquer(model, k=5, random_state=0).fit(X, labels)
    plain = clone(model).fit(X, labels)
    assert merged.coef_.shape == plain.coef_.shape
    assert merged.candidates_.shape == ((5, 4) if classes == 2 else (5, 3, 4))
    assert merged.score(X, labels) > plain.score(X, labels) - 0.03


@both
def test_several_outputs(kind):
    X, y = regression()
    Y = np.column_stack([y, -1e6 * y])
    model = kind(LinearRegression(), k=6, random_state=0).fit(X, Y)
    assert model.predict(X).shape == (600, 2)
    assert np.allclose(model.predict(X)[:, 1], -1e6 * model.predict(X)[:, 0], rtol=1e-4, atol=1)
    with pytest.raises(ValueError, match=r"1d array|1-dimensional|y should be"):
        kind(LogisticRegression()).fit(X, np.column_stack([y > 0, y > 1]).astype(int))


@pytest.mark.parametrize("merge", MERGES)
def test_without_intercepts_the_merged_model_has_none(merge):
    X, y = regression()
    model = DivideAndConquer(LinearRegression(fit_intercept=False), k=10, merge=merge, random_state=0)
    assert model.fit(X + 5.0, y).intercept_ == 0.0


def test_blocks_are_fewer_where_rows_tell_little():
    X, y = regression()
    labels = np.where(y > 3, "high", np.where(y < 0, "low", "middle"))
    claims = np.where(np.arange(600) % 20, 0.0, y)
    for target in (claims, np.column_stack([y, claims])):
        assert DivideAndConquer(LinearRegression(), random_state=0).fit(X, target).report_.k == 1
    assert DivideAndConquer(LogisticRegression(), random_state=0).fit(X, labels).report_.k < 8
    assert DivideAndConquer(LinearRegression(), random_state=0).fit(X, y).report_.k >= 24


class TestCoefficientsNeeded:
    @pytest.mark.parametrize("model", [DecisionTreeRegressor(), KNeighborsRegressor()], ids=str)
    def test_none(self, model):
        with pytest.raises(ValueError, match=r"needs an estimator with coef_; .* has none: use RobustValida"):
            DivideAndConquer(model, k=3).fit(*regression())

    @pytest.mark.parametrize("model", [PLSRegression(1), SVR(kernel="linear")], ids=str)
    def test_not_all(self, model):
        with pytest.raises(ValueError, match="predicts from coef_ and intercept_ alone"):
            DivideAndConquer(model, k=3).fit(*regression(60))


class TestPipelines:
    def test_first_steps_are_fitted_once(self):
        X, y = regression()
        model = DivideAndConquer(make_pipeline(StandardScaler(), Ridge()), k=5, random_state=0).fit(X, y)
        scaler = StandardScaler().fit(X)
        assert np.allclose(model.estimator_[0].mean_, scaler.mean_)
        direct = DivideAndConquer(Ridge(), k=5, random_state=0).fit(scaler.transform(X), y)
        assert np.allclose(model.coef_, direct.coef_)
        assert np.allclose(model.predict(X), direct.predict(scaler.transform(X)))

    def test_central_rows(self):
        X, y = regression()
        X[7] = 1e4
        robust = DivideAndConquer(make_pipeline(StandardScaler(), Ridge()), preprocess_fraction=0.95, k=5)
        assert robust.fit(X, y).estimator_[0].scale_.max() < 2
        with pytest.raises(ValueError, match="dense"):
            robust.fit(sparse.csr_array(X), y)

    def test_categories_in_data_frames(self):
        X, y = regression()
        frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.where(X[:, 0] > 0, "x", "y"))
        steps = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
        for kind in BOTH:
            model = kind(make_pipeline(steps, Ridge()), k=4, random_state=0).fit(frame, y)
            assert model.feature_names_in_.tolist() == ["a", "b", "c", "kind"]
            assert model.score(frame, y) > 0.5

    def test_text_without_an_encoder(self):
        X, y = regression()
        frame = pd.DataFrame(X).assign(kind=np.where(y > 0, "up", "down"))
        frame.columns = frame.columns.astype(str)
        with pytest.raises(ValueError, match=r"needs columns of numbers .* encode the others in a Pipeline"):
            DivideAndConquer(LinearRegression()).fit(frame, y)

    def test_texts(self):
        texts = ["good fine nice", "bad awful poor"] * 60
        model = make_pipeline(TfidfVectorizer(), LogisticRegression())
        for kind in BOTH:
            assert kind(model, k=4, random_state=0).fit(texts, [1, 0] * 60).score(texts, [1, 0] * 60) == 1


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
        model = kind(FailsOn(100), k=6, random_state=0)
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
            model = RobustValidation(FailsOn(100), k=6, random_state=1).fit(X, y)
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
