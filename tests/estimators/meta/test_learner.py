import numpy as np
import pytest
from joblib import parallel_config
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailproof.core.partition import blocks
from tailproof.core.scaling import FeatureScale
from tailproof.estimators.meta.learner import SklearnLearner, coefficients, set_coefficients
from tailproof.estimators.parallel import warn_of_forks

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3)) * [1.0, 1e-3, 1e3] + 5
Y = np.column_stack([X.sum(axis=1), RNG.standard_normal(90)])
LABELS = np.arange(90) % 3


@pytest.mark.parametrize(
    ("model", "y", "scale"),
    [
        (LinearRegression(), Y[:, 0], np.ones(1)),
        (LinearRegression(), Y, np.array([2.0, 1e6])),
        (LogisticRegression(max_iter=10_000), LABELS, np.ones(1)),
    ],
)
def test_vectors_and_back(model, y, scale):
    columns = FeatureScale(X.mean(axis=0), X.std(axis=0))
    scaled = (X - columns.centre) / columns.scale
    learner = SklearnLearner(model, X if y is not LABELS else scaled, y, {}, columns, scale)
    fitted = learner.advance(learner.start(blocks(90, 2, 0)[1]))
    assert fitted.index == 1
    coef, intercept = learner.unpack(learner.vector(fitted))
    assert np.allclose(coef, coefficients(fitted.estimator)[0])
    assert np.allclose(intercept, coefficients(fitted.estimator)[1], rtol=1e-6)
    plain = SklearnLearner(model, X, y, {}).vector(fitted)
    assert np.allclose(plain, np.column_stack(coefficients(fitted.estimator)).ravel())


def test_scaled_vector_predicts_scaled_targets():
    columns, target = FeatureScale(X.mean(axis=0), X.std(axis=0)), np.array([2.0])
    learner = SklearnLearner(LinearRegression(), X, Y[:, 0], {}, columns, target)
    fitted = learner.advance(learner.start(blocks(90, 1, 0)[0]))
    vector = learner.vector(fitted)
    scaled = (X - columns.centre) / columns.scale
    assert np.allclose(target * (scaled @ vector[:-1] + vector[-1]), fitted.estimator.predict(X))


def test_seeds_belong_to_blocks():
    model = make_pipeline(StandardScaler(), SGDRegressor())
    tasks = [SklearnLearner(model, X, Y[:, 0], {}).start(part) for part in blocks(90, 2, 0)]
    seeds = [task.estimator[-1].random_state for task in tasks]
    again = SklearnLearner(model, X, Y[:, 0], {}).start(blocks(90, 2, 0)[1]).estimator[-1].random_state
    assert seeds[0] != seeds[1] == again
    assert model[-1].random_state is None
    kept = SklearnLearner(SGDRegressor(random_state=7), X, Y[:, 0], {}).start(blocks(90, 2, 0)[0])
    assert kept.estimator.random_state == 7


def test_parameters_are_cut_up_like_the_rows():
    weights, part = np.arange(90.0), blocks(90, 3, 0)[2]
    task = SklearnLearner(LinearRegression(), X, Y[:, 0], {"sample_weight": weights}).start(part)
    assert np.array_equal(task.params["sample_weight"], weights[part.rows])
    assert np.array_equal(task.X, X[part.rows])


def test_a_failure_is_a_result():
    learner = SklearnLearner(LinearRegression(), np.full((4, 1), np.nan), np.ones(4), {})
    fitted = learner.advance(learner.start(blocks(4, 1, 0)[0]))
    assert fitted.estimator is None
    assert isinstance(fitted.error, ValueError)


def test_coefficients_keep_their_shapes():
    model = LinearRegression().fit(X, Y[:, 0])
    set_coefficients(model, np.ones((1, 3)), np.array([2.0]))
    assert model.coef_.shape == (3,)
    assert isinstance(model.intercept_, float)
    assert np.allclose(model.predict(X), X.sum(axis=1) + 2)
    without = LinearRegression(fit_intercept=False).fit(X, Y)
    assert coefficients(without)[1].tolist() == [0.0, 0.0]


def test_forks_of_estimators_with_openmp_are_warned_about():
    boosted = make_pipeline(StandardScaler(), HistGradientBoostingRegressor())
    with parallel_config(backend="multiprocessing", n_jobs=2):
        with pytest.warns(RuntimeWarning, match="HistGradientBoostingRegressor may wait for ever in a fork"):
            warn_of_forks(boosted, None)
        warn_of_forks(LinearRegression(), None)
        warn_of_forks(boosted, 1)
    with parallel_config(backend="loky", n_jobs=2):
        warn_of_forks(boosted, None)
