"""DivideAndConquer: one model of the blocks' coefficients."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
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
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR, LinearSVC
from sklearn.tree import DecisionTreeRegressor

from meta_models import BOTH, classification, regression
from tailproof import DivideAndConquer
from tailproof.core.merge import MERGES
from tailproof.core.partition import blocks


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
    model = DivideAndConquer(LinearRegression(), k=24, random_state=0, drop_glitches=False).fit(X, y)
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
        settings = {"preprocess_fraction": 0.95, "k": 5, "drop_glitches": False}
        robust = DivideAndConquer(make_pipeline(StandardScaler(), Ridge()), **settings)
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
