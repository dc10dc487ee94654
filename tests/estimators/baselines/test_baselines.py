"""Each aggregator beside a slow transcription of its equation; costs, budgets, divergence, constraints."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import brentq, minimize
from scipy.special import erfc, expit
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import tailproof as tp
from tailproof.core.losses import LOSSES, SOFTMAX_LOSS
from tailproof.core.numerics.m_estimates import PSI, SCALES
from tailproof.core.scaling import unscaled
from tailproof.estimators.baselines.aggregators import AGGREGATES, WIDTHS, MEstimate, Options
from tailproof.estimators.baselines.estimators import descend
from tailproof.estimators.baselines.row_gradients import Sample

DELTA = 0.01
GEMAN = 1 - np.sqrt(np.pi * np.e / 2) * erfc(1 / np.sqrt(2))
PAPER = {"fit_intercept": False, "scale_features": False, "shuffle": False, "tol": 0.0}


# The equations, literally: every row's gradient and loss, then the estimate.


def gradients_and_losses(loss, X, y, w):
    p = X @ w
    if loss == "squared_error":
        return (p - y)[:, None] * X, (p - y) ** 2 / 2
    return (-y * expit(-y * p))[:, None] * X, np.logaddexp(0, -y * p)


def literal_mean(gradients, losses, k):
    return sum(gradients) / len(gradients)


def literal_mom(gradients, losses, k):
    means = np.array([part.mean(axis=0) for part in np.array_split(gradients, k)])
    size = np.abs(means).max() or 1.0
    return size * literal_geometric_median(means / size)


def literal_geometric_median(points):
    """Return the point that is optimal, the middle of a line, or else where Weiszfeld's iteration ends."""
    middle = points.mean(axis=0)
    _, lengths, directions = np.linalg.svd(points - middle)
    if len(lengths) == 1 or lengths[1] <= 1e-9 * lengths[0]:
        return middle + np.median((points - middle) @ directions[0]) * directions[0]
    for point in points:
        away = np.linalg.norm(points - point, axis=1)
        same = away <= 1e-12
        force = ((points[~same] - point) / away[~same, None]).sum(axis=0)
        if np.linalg.norm(force) <= same.sum() * (1 + 1e-9):
            return point
    v = middle
    for _ in range(20_000):
        pull = 1 / np.maximum(np.linalg.norm(points - v, axis=1), 1e-200)
        v, before = pull @ points / pull.sum(), v
        if np.linalg.norm(v - before) <= 1e-15:
            break
    return v


def literal_lecue(gradients, losses, k, middle="lower"):
    risks = [np.mean(part) for part in np.array_split(losses, k)]
    chosen = np.argsort(risks, kind="stable")[(k - 1) // 2 if middle == "lower" else k // 2]
    return np.array_split(gradients, k)[chosen].mean(axis=0)


def literal_m(gradients, losses, k):
    return np.array([literal_m_coordinate(u) for u in gradients.T])


def literal_m_coordinate(u):
    centred = u - u.mean()
    sd = np.sqrt(np.mean(centred**2))
    if sd <= 1e-14 * np.abs(u).max():
        return u.mean()
    s = np.sqrt(len(u) / np.log(1 / DELTA)) * literal_scale(centred, sd)
    return brentq(
        lambda theta: np.sum(2 * np.arctan(np.tanh((u - theta) / s / 2))), u.min(), u.max(), xtol=1e-13 * s
    )


def literal_scale(centred, sd):
    """Geman's M-scale; the standard deviation where there is none."""

    def level(s):
        return np.mean(centred**2 / (centred**2 + s**2)) - GEMAN

    if level(1e-9 * sd) <= 0:
        return sd
    return brentq(level, 1e-9 * sd, 10 * sd, xtol=1e-14 * sd)


LITERAL = {
    "mean": literal_mean,
    "geometric_median_of_means": literal_mom,
    "m_estimate": literal_m,
    "median_block": literal_lecue,
}


def sample_of(loss, X, y, k, weights=None, **more):
    blocks = [slice(part[0], part[-1] + 1) for part in np.array_split(np.arange(len(X)), k)]
    weights = np.empty(0) if weights is None else weights
    return Sample(X, y, weights, LOSSES[loss], 1, unscaled(X.shape[1]), False, blocks, **more)


@st.composite
def problems(draw, most=60):
    """Rows with normal or heavy tails, with or without ties, and a place to take the gradient at."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, d = draw(st.integers(8, most)), draw(st.integers(1, 5))
    X = rng.standard_t(1.5, (n, d)) if draw(st.booleans()) else rng.standard_normal((n, d))
    if draw(st.booleans()):
        X = np.round(X)
    loss = draw(st.sampled_from(["squared_error", "log_loss"]))
    noise = rng.lognormal(0, 1.75, n)
    y = X.sum(axis=1) + noise if loss == "squared_error" else rng.choice([-1.0, 1.0], n)
    return loss, X, y, rng.standard_normal(d), draw(st.integers(1, 8))


def near_tie(losses, k):
    """Two blocks with the same mean loss up to rounding: either may be the median."""
    risks = np.sort([np.mean(part) for part in np.array_split(losses, k)])
    return np.any(np.diff(risks) <= 1e-12 * risks[1:])


def close(found, expected, gradients):
    assert np.abs(found - expected).max() <= 1e-8 * np.abs(gradients).max(initial=1e-300)


@pytest.mark.parametrize("name", AGGREGATES)
class TestAgainstTheEquations:
    @given(problem=problems())
    @settings(max_examples=150)
    def test_equals_the_literal_transcription(self, name, problem):
        loss, X, y, w, k = problem
        gradients, losses = gradients_and_losses(loss, X, y, w)
        if name == "median_block" and near_tie(losses, k):
            return
        sample = sample_of(loss, X, y, k)
        found = AGGREGATES[name](sample, Options(delta=DELTA))(sample.scores(w[None], np.zeros(1)))
        close(found.gradient[0], LITERAL[name](gradients, losses, k), gradients)

    @given(problem=problems(most=40))
    @settings(max_examples=60)
    def test_scaled_and_centred_columns_and_an_intercept(self, name, problem):
        """The gradient in scaled coordinates is the literal one of the scaled rows with a column of ones."""
        loss, X, y, w, k = problem
        columns = type(unscaled(1))(X.mean(axis=0), 1.0 + X.std(axis=0))
        Z = np.column_stack([(X - columns.centre) / columns.scale, np.ones(len(X))])
        gradients, losses = gradients_and_losses(loss, Z, y, np.append(w * columns.scale, 0.3))
        if name == "median_block" and near_tie(losses, k):
            return
        sample = Sample(X, y, np.empty(0), LOSSES[loss], 1, columns, True, sample_of(loss, X, y, k).blocks)
        found = AGGREGATES[name](sample, Options())(sample.scores(w[None], np.array([0.3])))
        close(found.gradient[0], LITERAL[name](gradients, losses, k), gradients)

    @given(problem=problems(most=40))
    @settings(max_examples=60)
    def test_a_path_of_updates_equals_the_literal_path(self, name, problem):
        """Warm starts save time and change nothing."""
        loss, X, y, w, k = problem
        k, path, step = min(k, len(X)), [], 0.1 / np.abs(X).max() ** 2 if X.any() else 0.1
        if loss == "log_loss" and len(np.unique(y)) < 2:
            return
        make = tp.RGDRegressor if loss == "squared_error" else tp.RGDClassifier
        model = make(aggregate=name, k=k, step_size=step, init=w, max_iter=4, **PAPER)
        model.set_params(callback=lambda cost, v: path.append(v)).fit(X, y)
        for before, after in itertools.pairwise(path):
            gradients, losses = gradients_and_losses(loss, X, y, before)
            if name == "median_block" and near_tie(losses, k):
                return
            close((before - after) / step, LITERAL[name](gradients, losses, k), gradients + 1 / step)

    def test_shuffled_blocks_and_sparse_rows_give_the_same_gradient(self, name):
        rng = np.random.default_rng(0)
        X, y, w = rng.standard_normal((50, 4)), rng.standard_normal(50), rng.standard_normal(4)
        order = rng.permutation(50)
        parts = np.array_split(order, 7)
        settled = sample_of("squared_error", X[order], y[order], 7, 1.0 + np.arange(50)[order])
        others = [
            Sample(rows, y, 1.0 + np.arange(50), settled.loss, 1, unscaled(4), False, parts)
            for rows in (X, sparse.csr_array(X))
        ]
        expected = AGGREGATES[name](settled, Options())(settled.scores(w[None], np.zeros(1)))
        for sample in others:
            found = AGGREGATES[name](sample, Options())(sample.scores(w[None], np.zeros(1)))
            assert np.allclose(found.gradient, expected.gradient, rtol=1e-9)
            assert found.cost == expected.cost

    def test_equal_weights_are_none_and_zero_is_absence(self, name):
        X, y = regression(60, 3)
        plain, equal, fewer, some = (tp.RGDRegressor(aggregate=name, k=5, shuffle=False) for _ in range(4))
        plain.fit(X, y)
        equal.fit(X, y, sample_weight=np.full(60, 3.0))
        assert np.allclose(plain.coef_, equal.coef_, rtol=1e-7)
        fewer.fit(X[:45], y[:45])
        some.fit(X, y, sample_weight=np.arange(60) < 45)
        assert np.allclose(fewer.coef_, some.coef_, rtol=1e-7)
        assert some.cost_ <= 45 * some.n_iter_

    def test_softmax_gradient(self, name):
        rng = np.random.default_rng(1)
        X, y, W = (
            rng.standard_normal((60, 3)),
            rng.integers(0, 4, 60).astype(float),
            rng.standard_normal((4, 3)),
        )
        parts = np.array_split(np.arange(60), 5)
        sample = Sample(
            X, y, np.empty(0), SOFTMAX_LOSS, 4, unscaled(3), False, [slice(p[0], p[-1] + 1) for p in parts]
        )
        scores = X @ W.T
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        losses = -np.log(shares[np.arange(60), y.astype(int)])
        slopes = shares - (y[:, None] == np.arange(4))
        gradients = (slopes[:, :, None] * X[:, None, :]).reshape(60, 12)
        found = AGGREGATES[name](sample, Options())(sample.scores(W, np.zeros(4)))
        close(found.gradient.ravel(), LITERAL[name](gradients, losses, 5), gradients)

    def test_huge_partial_derivatives_do_not_overflow(self, name):
        X, y = regression(60, 3)
        small, large = sample_of("squared_error", X, y, 5), sample_of("squared_error", X * 1e150, y, 5)
        one, other = (AGGREGATES[name](s, Options())(-y) for s in (small, large))
        assert np.allclose(other.gradient / 1e150, one.gradient, rtol=1e-8)

    def test_finds_the_model_in_heavy_noise(self, name):
        X, y = regression(4_000, 3)
        model = tp.RGDRegressor(aggregate=name, k=5, random_state=0, max_iter=300).fit(X, y)
        assert np.abs(model.coef_ - 1).max() < 0.5
        assert f"aggregate={name}" in str(model.report_)

    def test_not_a_number_in_the_data_is_named(self, name):
        for bad in (np.nan, np.inf):
            X, y = regression(200, 3)
            X[117, 1] = bad
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                tp.RGDRegressor(aggregate=name, k=5).fit(X, y)

    def test_divergence_ends_with_a_warning_and_a_finite_model(self, name):
        X, y = regression(100, 3)
        model = tp.RGDRegressor(aggregate=name, k=5, step_size=1e60, max_iter=50)
        with pytest.warns(ConvergenceWarning, match="smaller step_size"):
            model.fit(X, y)
        assert np.all(np.isfinite(model.coef_))
        assert np.isfinite(model.intercept_)
        assert model.n_iter_ < 50
        assert not model.converged_

    def test_callback_budget_and_cost(self, name):
        X, y = regression(103, 2)
        seen, per_update = [], 11 if name == "median_block" else 103
        model = tp.RGDRegressor(
            aggregate=name, k=10, budget=300, callback=lambda cost, w: seen.append((cost, w)), **PAPER
        )
        model.set_params(init=[0.5, 0.5], step_size=0.01).fit(X, y)
        costs = [cost for cost, _ in seen]
        assert costs[0] == 0
        assert costs[-1] == model.cost_ >= 300 > costs[-2]
        assert len(costs) == model.n_iter_ + 1
        assert set(np.diff(costs)) <= ({10, 11} if name == "median_block" else {per_update})
        assert np.array_equal(seen[0][1], [0.5, 0.5])
        assert np.array_equal(seen[-1][1], model.coef_)

    @pytest.mark.parametrize(
        ("constraint", "inside"),
        [
            (("ball", 0.7), lambda w: np.linalg.norm(w) <= 0.7 + 1e-12),
            (("box", -0.1, 0.6), lambda w: w.min() >= -0.1 and w.max() <= 0.6),
            (("l1_ball", 1.5), lambda w: np.abs(w).sum() <= 1.5 + 1e-12),
            (("simplex", 2.0), lambda w: w.min() >= 0 and np.isclose(w.sum(), 2.0)),
        ],
    )
    def test_constraints(self, name, constraint, inside):
        X, y = regression(300, 4)
        path = []
        model = tp.RGDRegressor(aggregate=name, k=5, constraint=constraint)
        model.set_params(callback=lambda cost, w: path.append(w[:-1])).fit(X, y)
        assert all(inside(w) for w in path)


def regression(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + rng.lognormal(0, 1.75, n)


def test_mean_converges_to_least_squares_and_to_logistic_regression():
    X, y = regression(500, 4)
    units = np.array([1, 1e3, 1e-6, 10])
    model = tp.RGDRegressor(max_iter=2_000, tol=1e-12).fit(X * units, y)
    exact = LinearRegression().fit(X, y)
    assert np.allclose(model.coef_ * units, exact.coef_, rtol=1e-6)
    assert np.isclose(model.intercept_, exact.intercept_, rtol=1e-6)
    assert model.converged_
    labels = y > np.median(y)
    classifier = tp.RGDClassifier(max_iter=5_000, tol=1e-10).fit(X, labels)
    exact = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1_000).fit(X, labels)
    assert np.allclose(classifier.coef_, exact.coef_, rtol=1e-3)


def test_several_classes():
    X, y = make_classification(600, 8, n_informative=6, n_classes=3, random_state=0)
    for loss in ("log_loss", "squared_hinge", "hinge"):
        for name in AGGREGATES:
            model = tp.RGDClassifier(loss, aggregate=name, k=5, random_state=0).fit(X, y)
            assert model.coef_.shape == (3, 8)
            assert model.score(X, y) > 0.55


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.task == "regression"])
def test_every_loss_of_regression_descends(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 3))
    y = rng.poisson(np.exp(0.3 * X.sum(axis=1))) + (0.1 if loss == "gamma" else 0.0)
    risk = {}
    for max_iter in (1, 200):
        model = tp.RGDRegressor(loss, max_iter=max_iter).fit(X, y)
        risk[max_iter] = np.mean(LOSSES[loss].value(X @ model.coef_ + model.intercept_, y))
    assert risk[200] < risk[1]


def test_penalties_reach_the_penalised_optimum():
    X, y = regression(300, 3)
    for penalty, l1, l2 in (("l2", 0, 1), ("l1", 1, 0), ("elasticnet", 0.15, 0.85)):
        model = tp.RGDRegressor(
            penalty=penalty, alpha=0.5, fit_intercept=False, max_iter=3_000, tol=1e-13
        ).fit(X, y)

        def objective(w, l1=l1, l2=l2):
            return np.mean((X @ w - y) ** 2) / 2 + 0.5 * (l1 * np.abs(w).sum() + l2 * w @ w / 2)

        best = minimize(objective, model.coef_, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
        assert objective(model.coef_) <= best.fun + 1e-9


def test_even_number_of_blocks_follows_the_documented_rule():
    X, y = np.ones((4, 1)), np.array([4.0, 3.0, 2.0, 1.0])  # at w = 0 the losses are 8, 4.5, 2, 0.5
    for middle, slope in (("lower", -2.0), ("upper", -3.0)):
        sample = sample_of("squared_error", X, y, 4)
        found = AGGREGATES["median_block"](sample, Options(middle=middle))(np.zeros(4))
        assert found.gradient.item() == slope
        assert found.cost == 1
    tied = sample_of("squared_error", X, np.array([1.0, -1.0, 1.0, -1.0]), 4)
    assert AGGREGATES["median_block"](tied, Options())(np.zeros(4)).gradient.item() == 1.0  # the second


@pytest.mark.parametrize("psi", PSI)
@pytest.mark.parametrize("scale", SCALES)
def test_options_of_the_m_estimate(psi, scale):
    X, y = regression(300, 2)
    sample = sample_of("squared_error", X, y, 1)
    found = MEstimate(sample, Options(DELTA, psi, scale))(np.zeros(300)).gradient[0]
    for j, theta in enumerate(found):
        u = -y * X[:, j]
        s = SCALES[scale](u[None], np.empty(0), 5)[0] * np.sqrt(300 / np.log(1 / DELTA))
        x = (u - theta) / s
        sums = {
            "gudermannian": 2 * np.arctan(np.exp(x)) - np.pi / 2,
            "polynomial": np.clip(x, -np.sqrt(2), np.sqrt(2)) - np.clip(x, -np.sqrt(2), np.sqrt(2)) ** 3 / 6,
            "wide": np.sign(x) * np.log1p(np.abs(x) + x**2 / 2),
        }
        assert abs(sums[psi].mean()) <= 1e-10


def test_widths_of_the_m_estimate():
    n, delta = 50.0, 0.05
    q2 = 2 * np.log(2 / delta) / (n - 2 * np.log(2 / delta))  # for σ = 1
    assert np.isclose(WIDTHS["cat"](n, delta) ** 2, n * (1 + q2) / (2 * np.log(2 / delta)), rtol=1e-12)
    assert np.isclose(WIDTHS["holland-ikeda"](n, delta) ** 2, n / np.log(1 / delta), rtol=1e-12)
    X, y = regression(500, 2)
    one, other = (tp.RGDRegressor(aggregate="m_estimate", m_width=width).fit(X, y) for width in WIDTHS)
    assert not np.allclose(one.coef_, other.coef_, rtol=1e-6)
    with pytest.raises(ValueError, match="needs 22 rows"):
        tp.RGDRegressor(aggregate="m_estimate", m_width="cat").fit(X[:20], y[:20])


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("tied", [False, True])
def test_standing_still_changes_nothing(name, tied):
    """A search that starts exactly where the last one ended must end there, too."""
    X, y = regression(200, 3)
    X = np.round(X) if tied else X
    sample = sample_of("squared_error", X, y, 5)
    estimate = AGGREGATES[name](sample, Options())
    first = estimate(-y).gradient
    for _ in range(20):
        assert np.allclose(estimate(-y).gradient, first, rtol=1e-9)


def test_warm_started_scales_stay():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((100, 50)) * rng.lognormal(0, 1, (100, 50))
    first = scale = SCALES["m-scale"](values, np.empty(0), 5)
    for _ in range(5):
        scale = SCALES["m-scale"](values, np.empty(0), 5, near=scale)
        assert np.allclose(scale, first, rtol=1e-9)


def test_weights_of_the_m_estimate_are_repetitions():
    """Up to the scale's factor, which takes the effective number of rows for the number."""
    X, y = regression(80, 2)
    weights = np.random.default_rng(0).integers(1, 4, 80)
    weighted = MEstimate(sample_of("squared_error", X, y, 1, weights.astype(float)), Options())
    repeated = sample_of("squared_error", np.repeat(X, weights, axis=0), np.repeat(y, weights), 1)
    literal = MEstimate(repeated, Options())
    literal.widen = weighted.widen
    assert np.allclose(weighted(np.zeros(80)).gradient, literal(np.zeros(repeated.size)).gradient, rtol=1e-9)


def test_threads_change_nothing():
    X, y = regression(5_000, 70)
    model = tp.RGDRegressor(aggregate="m_estimate", max_iter=3, random_state=0)
    one, two = (clone(model).set_params(n_jobs=j).fit(X, y) for j in (1, 2))
    assert np.array_equal(one.coef_, two.coef_)


def test_wild_rows_do_not_move_the_robust_methods():
    X, y = regression(4_000, 3)
    X[::1000], y[::1000] = 1e12, -1e12
    for name in ("geometric_median_of_means", "m_estimate", "median_block"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = tp.RGDRegressor(aggregate=name, k=12, m_scale="robust", random_state=0, max_iter=300)
            model.fit(X, y)
        assert np.abs(model.coef_ - 1).max() < 1, name


@pytest.mark.parametrize("name", AGGREGATES)
class TestDescend:
    def test_is_the_literal_loop(self, name):
        X, y = regression(203, 4)
        w, path = np.array([3.0, -1.0, 0.0, 2.0]), []
        found = descend(
            X, y, w, aggregate=name, k=7, max_iter=30, callback=lambda cost, v: path.append((cost, v))
        )
        for t in range(30):
            assert np.abs(path[t][1] - w).max() <= 1e-8
            gradients, losses = gradients_and_losses("squared_error", X, y, w)
            w = w - 0.1 / 2 * LITERAL[name](gradients, losses, 7)
        assert np.abs(found.w - w).max() <= 1e-8
        assert path[-1][0] == found.cost
        assert found.n_iter == 30

    def test_is_what_the_estimator_does(self, name):
        X, y = regression(200, 3)
        labels = np.where(y > np.median(y), 1.0, -1.0)
        settings = {"aggregate": name, "k": 6, "step_size": 0.3, "max_iter": None, "budget": 2_000}
        plain = descend(X, labels, np.zeros(3), loss="log_loss", **settings)
        model = tp.RGDClassifier(init=np.zeros(3), **settings, **PAPER).fit(X, labels)
        assert np.array_equal(model.coef_[0], plain.w)
        assert (model.cost_, model.n_iter_) == (plain.cost, plain.n_iter)
        assert plain.cost >= 2_000 > plain.cost * (1 - 1 / plain.n_iter) - 1

    def test_ends_with_the_last_finite_iterate(self, name):
        X, y = regression(100, 3)
        found = descend(X, y, np.zeros(3), aggregate=name, step_size=1e60, max_iter=50)
        assert found.diverged
        assert found.n_iter < 50
        assert np.all(np.isfinite(found.w))


def test_descend_refuses_what_it_cannot_do():
    X, y = regression(50, 2)
    for arguments, message in (
        ({}, "needs an end"),
        ({"step_size": "auto", "max_iter": 3}, "steps it is given"),
        ({"aggregate": "median", "max_iter": 3}, "aggregate"),
        ({"loss": "cubic", "max_iter": 3}, "loss"),
        ({"k": 51, "aggregate": "median_block", "max_iter": 3}, "51 blocks"),
    ):
        with pytest.raises(ValueError, match=message):
            descend(X, y, np.zeros(2), **arguments)
    with pytest.raises(ValueError, match="needs an end"):
        tp.RGDRegressor(max_iter=None).fit(X, y)


def test_single_process_sgd_is_dc_sgd_with_one_block():
    X, y = regression(80, 3)
    w = np.array([1.0, 2.0, 3.0])
    plain = {"shuffle": False, "average": False, "fit_intercept": False, "scale_features": False}
    model = tp.DCSGDRegressor(k=1, step_size=("over_root_d", 0.01), max_iter=1, update="explicit", **plain)
    model.set_params(init=w).fit(X, y)
    for x, target in zip(X, y, strict=True):
        w = w - 0.01 / np.sqrt(3) * (x @ w - target) * x
    assert np.allclose(model.coef_, w, rtol=1e-10)
    assert model.report_.gradient_evaluations == 80


@pytest.mark.parametrize("name", AGGREGATES)
def test_sparse_rows_give_the_model_of_dense_ones(name):
    X, y = regression(300, 4)
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    model = tp.RGDRegressor(aggregate=name, k=5, random_state=0, scale_features=False, step_size=0.5, tol=0.0)
    dense, thin = (clone(model).fit(rows, y) for rows in (X, sparse.csr_array(X)))
    assert np.allclose(dense.coef_, thin.coef_, rtol=1e-7)
    assert np.isclose(dense.intercept_, thin.intercept_, rtol=1e-7)
    assert not hasattr(model, "partial_fit")


def test_warm_start_and_named_schedules():
    X, y = regression(300, 3)
    model = tp.RGDRegressor(max_iter=5, warm_start=True, step_size=("theorem2", 2.0, 1.0), tol=0.0)
    first = model.fit(X, y).coef_.copy()
    assert not np.allclose(model.fit(X, y).coef_, first)
    assert model.n_iter_ == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"aggregate": "median"}, "aggregate"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"budget": 0}, "budget"),
        ({"callback": 3}, "callback"),
        ({"m_psi": "huber"}, "m_psi"),
        ({"m_scale": "mad"}, "m_scale"),
        ({"m_width": "wide"}, "m_width"),
        ({"middle": "left"}, "middle"),
        ({"delta": 0.0}, "delta"),
        ({"k": 0}, "k"),
        ({"k": 101, "aggregate": "median_block"}, "k=101"),
        ({"step_size": "fast"}, "step_size"),
        ({"step_size": -1.0}, "step size"),
        ({"constraint": "sphere"}, "constraint"),
        ({"loss": "log_loss"}, "loss"),
        ({"init": np.zeros(7)}, "start must be"),
    ],
)
def test_bad_arguments_are_one_clear_error(arguments, message):
    X, y = regression(100, 3)
    with pytest.raises(ValueError, match=message):
        tp.RGDRegressor(**arguments).fit(X, y)


def expected_failures(estimator):
    reason = "scales, start and step come from the rows as they are, whatever their weights"
    checks = (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    )
    return dict.fromkeys(checks, reason)


@parametrize_with_checks(
    [make(aggregate=name) for make in (tp.RGDRegressor, tp.RGDClassifier) for name in AGGREGATES],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn(estimator, check):
    check(estimator)
