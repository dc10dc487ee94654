"""Sub-processes by name: each against a slow, literal transcription; what they have in common."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import tailproof as tp
from tailproof.core.losses import LOSSES
from tailproof.core.partition import Block
from tailproof.core.rules import RULES, Clipped, Entropy, Mirror, PlainSGD, get_rule
from tailproof.core.scaling import FeatureScale
from tailproof.core.sets import ALL_SPACE, Simplex
from tailproof.core.sgd import SGDLearner
from tailproof.core.steps import get_steps

N, D, STEP = 60, 5, 0.05
EXAMPLES = {
    "sgd": PlainSGD(),
    "clipped": Clipped(1.5),
    "mirror": Mirror(1.3),
    "entropy": Entropy(),
}


def test_every_rule_has_an_example():
    assert set(EXAMPLES) == set(RULES)
    for name, rule in EXAMPLES.items():
        assert isinstance(rule, RULES[name])


def problem(seed=0, heavy=True):
    random = np.random.default_rng(seed)
    X = random.standard_normal((N, D)) * [1.0, 2.0, 0.5, 1.0, 3.0]
    noise = np.exp(1.75 * random.standard_normal(N)) if heavy else random.standard_normal(N)
    return X, X @ np.linspace(-1, 1, D) + noise


def make_learner(rule, X, y, *, batch_size=1, fit_intercept=True, scale=None, implicit=False, step=STEP):
    simplex = isinstance(rule, Entropy)
    scale = np.ones(D) if scale is None or simplex else scale
    return SGDLearner(
        X=X,
        y=y,
        weights=np.empty(0),
        loss=LOSSES["squared_error"],
        columns=FeatureScale(np.zeros(D), scale),
        steps=get_steps(step),
        curvature=1.0,
        n_blocks=1,
        outputs=1,
        start_coef=np.full((1, D), 0.4 if simplex else 0.1),
        start_intercept=np.zeros(1),
        average=False,
        implicit=implicit,
        batch_size=batch_size,
        constraint=Simplex(2.0) if simplex else ALL_SPACE,
        fit_intercept=fit_intercept,
        rule=rule,
    )


def slow_gradient(v, p):
    """∇(½‖v‖²_p), entry by entry."""
    norm = sum(abs(x) ** p for x in v) ** (1 / p)
    return np.array([math.copysign(abs(x) ** (p - 1), x) * norm ** (2 - p) if x else 0.0 for x in v])


def slow_step(rule, u, g, step):
    if isinstance(rule, Mirror):
        dual = slow_gradient(u, rule.p) - step * g
        return slow_gradient(dual, rule.p / (rule.p - 1))
    if isinstance(rule, Entropy):
        grown = u * np.exp(-step * g)
        return 2.0 * grown / grown.sum()
    return u - step * g


def slow_pass(rule, X, y, order, batch_size, fit_intercept, scale):
    """Equation sgd_defn or smd_defn in scaled coordinates u = scale · w, one mini-batch after the other."""
    u = (0.4 if isinstance(rule, Entropy) else 0.1) * np.ones(D) * scale
    b, path = 0.0, []
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        z = X[rows] / scale
        slopes = z @ u + b - y[rows]
        g, g_b = slopes @ z / len(rows), slopes.mean() * fit_intercept
        if isinstance(rule, Clipped):
            norm = math.sqrt(g @ g + g_b**2)
            g, g_b = (min(1.0, rule.level / norm) * part for part in (g, g_b))
        u, b = slow_step(rule, u, g, STEP), b - STEP * g_b
        path.append(np.append(u / scale, b))
    return np.array(path)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("batch_size", "fit_intercept"), [(1, True), (1, False), (7, True)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_is_that_of_a_slow_transcription(name, batch_size, fit_intercept, kind):
    rule, (X, y) = EXAMPLES[name], problem(heavy=name != "sgd")
    scale = np.ones(D) if name == "entropy" else np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    block = Block(0, np.random.default_rng(1).permutation(N), np.random.SeedSequence(0))
    learner = make_learner(rule, kind(X), y, batch_size=batch_size, fit_intercept=fit_intercept, scale=scale)
    state = learner.advance(learner.start(block))
    path = slow_pass(rule, X, y, block.rows, batch_size, fit_intercept, scale)
    found = np.append(state.coef[0], state.intercept)
    mean = np.append(state.mean_coef[0], state.mean_intercept)
    np.testing.assert_allclose(found, path[-1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mean, path.mean(axis=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule", [Mirror(2.0), Clipped(1e300)])
def test_the_limits_of_rules_are_plain_sgd(rule):
    X, y = problem()
    block = Block(0, np.arange(N), np.random.SeedSequence(0))
    plain, other = (make_learner(r, X, y, scale=np.arange(1.0, D + 1)) for r in (PlainSGD(), rule))
    one, two = (learner.advance(learner.start(block)) for learner in (plain, other))
    np.testing.assert_allclose(one.coef, two.coef, rtol=1e-9)


@pytest.mark.parametrize("name", EXAMPLES)
def test_columns_in_other_units_give_the_same_candidate(name):
    if name == "entropy":
        pytest.skip("the simplex is no longer one in other units")
    rule, (X, y) = EXAMPLES[name], problem()
    units = np.array([1e-8, 1.0, 1e6, 1e12, 3.0])
    block = Block(0, np.arange(N), np.random.SeedSequence(0))

    def run(X, scale):
        learner = make_learner(rule, X, y, scale=scale, step=0.001)
        learner = replace(learner, start_coef=np.zeros((1, D)))
        return learner.advance(learner.start(block)).coef[0]

    np.testing.assert_allclose(run(X * units, units) * units, run(X, np.ones(D)), rtol=1e-7)


def test_one_row_moves_a_clipped_candidate_by_the_level_at_most():
    X, y = problem()
    y[3] = 1e12
    learner = make_learner(Clipped(2.0), X, y)
    path = slow_pass(Clipped(2.0), X, y, np.arange(N), 1, True, np.ones(D))
    state = learner.advance(learner.start(Block(0, np.arange(N), np.random.SeedSequence(0))))
    assert np.linalg.norm(np.diff(path, axis=0), axis=1).max() <= STEP * 2.0 + 1e-12
    np.testing.assert_allclose(state.coef[0], path[-1, :D], rtol=1e-9)


def test_entropy_stays_on_the_simplex():
    X, y = problem()
    learner = make_learner(Entropy(), X, y, step=3.0)
    state = learner.start(Block(0, np.arange(N), np.random.SeedSequence(0)))
    for _ in range(5):
        state = learner.advance(state)
        assert (state.coef >= 0).all()
        assert state.coef.sum() == pytest.approx(2.0)


def test_infinite_data_are_not_hidden():
    X, y = problem()
    X[7, 2] = np.nan
    for rule in EXAMPLES.values():
        learner = make_learner(rule, X, y)
        state = learner.advance(learner.start(Block(0, np.arange(N), np.random.SeedSequence(0))))
        assert np.isnan(state.coef).any()


@pytest.mark.parametrize("estimator", [tp.DCSGDRegressor, tp.RVSGDRegressor])
@pytest.mark.parametrize("spec", ["sgd", "clipped", ("clipped", 3.0), "mirror", ("mirror", 1.5)])
def test_estimators_take_a_learner_by_name(estimator, spec):
    random = np.random.default_rng(0)
    X = random.standard_normal((2000, 4))
    y = X @ [1.0, -2.0, 0.0, 3.0] + random.standard_t(2.5, 2000)
    model = estimator(learner=spec, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1.0, -2.0, 0.0, 3.0], atol=0.5)
    other = estimator(learner=spec, random_state=0, n_jobs=2).fit(X, y)
    assert np.array_equal(model.coef_, other.coef_)


def test_the_paper_s_mode_is_the_literal_algorithm_with_clipped_sub_processes():
    X, y = problem()
    given = {"scale_features": False, "shuffle": False, "average": False, "update": "explicit", "max_iter": 1}
    model = tp.DCSGDRegressor(
        k=3,
        learner=("clipped", 1.5),
        step_size=STEP,
        fit_intercept=False,
        init=np.full(D, 0.1),
        trim=False,
        **given,
    ).fit(X, y)
    for part, candidate in zip(np.array_split(np.arange(N), 3), model.candidates_, strict=True):
        expected = slow_pass(Clipped(1.5), X, y, part, 1, False, np.ones(D))[-1]
        np.testing.assert_allclose(candidate, expected, rtol=1e-10, atol=1e-12)


def test_weights_on_the_simplex_by_entropy():
    random = np.random.default_rng(0)
    X = random.standard_normal((3000, 4))
    y = X @ [0.5, 0.5, 0.0, 0.0] + 0.1 * random.standard_normal(3000)
    model = tp.DCSGDRegressor(learner="entropy", constraint=("simplex", 1.0), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [0.5, 0.5, 0.0, 0.0], atol=0.05)


def test_a_stream_takes_a_learner_too():
    random = np.random.default_rng(0)
    X = random.standard_normal((3000, 3))
    y = X @ [1.0, 2.0, 3.0] + random.standard_t(2.5, 3000)
    pieces = [(X[i : i + 500], y[i : i + 500]) for i in range(0, 3000, 500)]
    model = tp.fit(tp.DCSGDRegressor(learner="clipped", random_state=0), pieces)
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0], atol=0.5)


def test_clipping_helps_a_single_process_under_heavy_tails():
    """k = 1, where nothing is merged: errors of clipped SGD are below those of SGD."""
    errors = {"sgd": [], "clipped": []}
    for seed in range(10):
        random = np.random.default_rng(seed)
        X = random.standard_normal((500, 3))
        y = X.sum(axis=1) + np.exp(1.75 * random.standard_normal(500))
        for name, found in errors.items():
            model = tp.DCSGDRegressor(
                k=1, learner=name, step_size=0.02, update="explicit", max_iter=3, random_state=0
            )
            found.append(np.linalg.norm(model.fit(X, y).coef_ - 1))
    assert np.median(errors["clipped"]) < 0.7 * np.median(errors["sgd"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": "newton"}, "learner must be one of"),
        ({"learner": ("clipped", -1.0)}, "clipping level must be positive"),
        ({"learner": ("mirror", 3.0)}, r"p of mirror descent must lie in \(1, 2\]"),
        ({"learner": ("sgd", 1.0)}, "does not take 1 numbers"),
        ({"learner": "entropy"}, "needs constraint"),
        ({"learner": "mirror", "penalty": "l1", "alpha": 0.1}, "takes no penalty"),
    ],
)
def test_mistakes_are_one_sentence(change, message):
    with pytest.raises(ValueError, match=message):
        tp.DCSGDRegressor(**change).fit(*problem())


def test_a_rule_is_read_from_names_numbers_and_objects():
    assert get_rule(["mirror", 1.5]) == Mirror(1.5)
    assert get_rule(Mirror(1.5)) == Mirror(1.5)
