"""Sub-processes by name: each against a slow, literal transcription; what they have in common."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import tailproof as tp
from tailproof.core.losses import LOSSES
from tailproof.core.partition import Block
from tailproof.core.rules import RULES, Clipped, Entropy, Mirror, Momentum, PlainSGD, Truncated, get_rule
from tailproof.core.scaling import FeatureScale
from tailproof.core.sets import ALL_SPACE, Simplex
from tailproof.core.sgd import SGDLearner
from tailproof.core.steps import get_steps
from tailproof.data import fit

N, D, STEP = 60, 5, 0.05
ANCHOR, PLACE = np.linspace(-0.2, 0.3, D + 1), np.linspace(0.0, 0.5, D + 1)
EXAMPLES = {
    "sgd": PlainSGD(),
    "clipped": Clipped(1.5),
    "mirror": Mirror(1.3),
    "entropy": Entropy(),
    "momentum": Momentum(0.8),
    "truncated": Truncated(2.0, 1.4, np.concatenate([[2.0, 0.5], ANCHOR, PLACE])),
}
# Names and numbers as users give them; entropy needs a constraint.
SPECS = {name: {"learner": name} for name in RULES}
SPECS["entropy"]["constraint"] = ("simplex", 2.0)


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


def slow_norm(v, p):
    return sum(abs(x) ** p for x in v) ** (1 / p)


def slow_gradient_of_rule(rule, g, g_b, u, b, v):
    """What takes the place of a gradient; v is the running mean of those before."""
    if isinstance(rule, Clipped):
        norm = math.sqrt(g @ g + g_b**2)
        return min(1.0, rule.level / norm) * g, min(1.0, rule.level / norm) * g_b
    if isinstance(rule, Momentum):
        v[:] = rule.beta * v + (1 - rule.beta) * np.append(g, g_b)
        return v[:-1].copy(), v[-1]
    if isinstance(rule, Truncated):
        gap = math.hypot(slow_norm(g - ANCHOR[:-1], rule.p / (rule.p - 1)), g_b - ANCHOR[-1])
        way = math.hypot(slow_norm(u - PLACE[:-1], rule.p), b - PLACE[-1])
        if gap > 2.0 + 0.5 * way:
            return ANCHOR[:-1], ANCHOR[-1]
    return g, g_b


def slow_step(rule, u, g, step):
    if isinstance(rule, Mirror | Truncated):
        dual = slow_gradient(u, rule.p) - step * g
        return slow_gradient(dual, rule.p / (rule.p - 1))
    if isinstance(rule, Entropy):
        grown = u * np.exp(-step * g)
        return 2.0 * grown / grown.sum()
    return u - step * g


def slow_pass(rule, X, y, order, batch_size, fit_intercept, scale):
    """Equation sgd_defn or smd_defn in scaled coordinates u = scale · w, one mini-batch after the other."""
    u = (0.4 if isinstance(rule, Entropy) else 0.1) * np.ones(D) * scale
    b, path, v = 0.0, [], np.zeros(D + 1)
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        z = X[rows] / scale
        slopes = z @ u + b - y[rows]
        g, g_b = slopes @ z / len(rows), slopes.mean() * fit_intercept
        g, g_b = slow_gradient_of_rule(rule, g, g_b, u, b, v)
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


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_in_two_parts_is_the_same_pass(name):
    """As in streams, where a candidate meets its rows batch by batch."""
    rule, (X, y) = EXAMPLES[name], problem()
    learner = make_learner(rule, X, y, scale=np.arange(1.0, D + 1))
    whole = learner.advance(learner.start(Block(0, np.arange(N), np.random.SeedSequence(0))))
    state = learner.start(Block(0, np.arange(N), np.random.SeedSequence(0)))
    for part in (np.arange(23), np.arange(23, N)):
        state = learner.advance(replace(state, block=Block(0, part, np.random.SeedSequence(0)), passes=0))
    np.testing.assert_allclose(state.coef, whole.coef, rtol=1e-9)
    np.testing.assert_allclose(state.intercept, whole.intercept, rtol=1e-9)


@pytest.mark.parametrize(
    "rule",
    [
        Mirror(2.0),
        Clipped(1e300),
        Momentum(0.0),
        Truncated(1.0, 2.0, np.repeat([1e300, 0.0], [1, 2 * D + 3])),
    ],
)
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


def simplex_problem(n=1200):
    random = np.random.default_rng(0)
    X = random.standard_normal((n, 4))
    return X, X @ [1.0, 0.5, 0.0, 0.5] + random.standard_t(2.5, n)


@pytest.mark.parametrize("estimator", [tp.DCSGDRegressor, tp.RVSGDRegressor])
@pytest.mark.parametrize("spec", RULES)
def test_estimators_take_a_learner_by_name(estimator, spec):
    X, y = simplex_problem()
    model = estimator(**SPECS[spec], k=4, max_iter=6, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1.0, 0.5, 0.0, 0.5], atol=0.3)
    other = estimator(**SPECS[spec], k=4, max_iter=6, random_state=0, n_jobs=2).fit(X, y)
    assert np.array_equal(model.coef_, other.coef_)


@pytest.mark.parametrize(
    "spec", [("clipped", 3.0), ("mirror", 1.5), ("momentum", 0.5), ("truncated", 9.0, 1.5)]
)
def test_learners_with_numbers(spec):
    X, y = simplex_problem()
    model = tp.DCSGDRegressor(learner=spec, random_state=0, max_iter=3).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1.0, 0.5, 0.0, 0.5], atol=0.3)


@pytest.mark.parametrize("estimator", [tp.DCSGDClassifier, tp.RVSGDClassifier])
@pytest.mark.parametrize("name", ["momentum", "truncated"])
def test_several_classes(estimator, name):
    random = np.random.default_rng(0)
    X = random.standard_normal((1500, 3))
    y = np.argmax(X + 0.1 * random.standard_normal((1500, 3)), axis=1)
    assert estimator(learner=name, random_state=0, max_iter=4).fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize(("estimator", "rows"), [(tp.DCSGDRegressor, N), (tp.RVSGDRegressor, N // 2)])
@pytest.mark.parametrize("rule", [Clipped(1.5), Mirror(1.3), Entropy(), Momentum(0.8)])
def test_the_paper_s_mode_is_the_literal_algorithm(rule, estimator, rows):
    """Blocks follow each other; robust validation trains on the first half of the rows."""
    X, y = problem()
    simplex = isinstance(rule, Entropy)
    given = {"scale_features": False, "shuffle": False, "average": False, "update": "explicit", "max_iter": 1}
    model = estimator(
        k=3,
        learner=rule,
        step_size=STEP,
        fit_intercept=False,
        init=np.full(D, 0.4 if simplex else 0.1),
        constraint=("simplex", 2.0) if simplex else None,
        **given,
    )
    model.set_params(**{"trim": False} if "trim" in model.get_params() else {}).fit(X, y)
    for part, candidate in zip(np.array_split(np.arange(rows), 3), model.candidates_, strict=True):
        expected = slow_pass(rule, X, y, part, 1, False, np.ones(D))[-1]
        np.testing.assert_allclose(candidate, expected, rtol=1e-10, atol=1e-12)


def test_weights_on_the_simplex_by_entropy():
    random = np.random.default_rng(0)
    X = random.standard_normal((1000, 4))
    y = X @ [0.5, 0.5, 0.0, 0.0] + 0.1 * random.standard_normal(1000)
    settings = {"learner": "entropy", "constraint": ("simplex", 1.0), "k": 4, "max_iter": 10}
    model = tp.DCSGDRegressor(**settings, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [0.5, 0.5, 0.0, 0.0], atol=0.05)


@pytest.mark.parametrize("estimator", [tp.DCSGDRegressor, tp.RVSGDRegressor])
@pytest.mark.parametrize("name", RULES)
def test_a_stream_takes_every_learner(estimator, name):
    X, y = simplex_problem()
    pieces = [(X[i : i + 400], y[i : i + 400]) for i in range(0, 1200, 400)]
    model = tp.fit(estimator(**SPECS[name], k=4, max_iter=3, random_state=0), pieces)
    np.testing.assert_allclose(model.coef_, [1.0, 0.5, 0.0, 0.5], atol=0.3)
    again = tp.fit(estimator(**SPECS[name], k=4, max_iter=3, random_state=0), iter(pieces))
    assert np.array_equal(model.candidates_, again.candidates_)


def test_a_checkpoint_keeps_the_velocity(tmp_path, monkeypatch):
    X, y = simplex_problem(600)
    pieces = [tmp_path / f"{i}.csv" for i in range(3)]
    for i, path in enumerate(pieces):
        np.savetxt(path, np.column_stack([X, y])[i::3], delimiter=",", header="a,b,c,d,y", comments="")
    model, broken = (tp.DCSGDRegressor(learner="momentum", k=2, max_iter=2, random_state=0) for _ in range(2))
    tp.fit(model, pieces)
    run = fit.Passes.run

    def run_once(self, *tasks):
        if self.number:
            raise KeyboardInterrupt
        return run(self, *tasks)

    mark = {"checkpoint": tmp_path / "mark", "checkpoint_seconds": 0.0}
    with monkeypatch.context() as patch:
        patch.setattr(fit.Passes, "run", run_once)
        with pytest.raises(KeyboardInterrupt):
            tp.fit(broken, pieces, **mark)
    assert np.array_equal(tp.fit(broken, pieces, **mark).candidates_, model.candidates_)


@pytest.mark.parametrize("name", RULES)
def test_partial_fit_goes_on_from_a_file(name, tmp_path):
    """What a candidate or a rule remembers is saved too."""
    X, y = simplex_problem(600)
    model = tp.DCSGDRegressor(**SPECS[name], k=2, random_state=0).partial_fit(X[:400], y[:400])
    tp.save(model, tmp_path / "model")
    loaded = tp.load(tmp_path / "model")
    for one in (model, loaded):
        one.partial_fit(X[400:], y[400:])
    np.testing.assert_array_equal(model.coef_, loaded.coef_)


def test_one_gradient_moves_truncated_descent_no_farther_than_anchor_and_level():
    X, y = problem()
    y[3] = 1e12
    rule = EXAMPLES["truncated"]
    learner = make_learner(rule, X, y)
    state = learner.advance(learner.start(Block(0, np.arange(N), np.random.SeedSequence(0))))
    assert np.abs(state.coef).max() < 100


def test_the_automatic_level_of_truncation_grows_with_the_rows_of_a_block():
    class Start:
        d, block_rows = 2, 300.0

        def anchor(self):
            return np.zeros(3)

        def distances(self, anchor, p):
            return np.full(50, 2.0)

        def smoothness(self):
            return 1.5

        def place(self):
            return np.ones(3)

    memory = Truncated().prepared(Start()).memory
    np.testing.assert_allclose(memory, [20.0, 1.5, 0, 0, 0, 1, 1, 1])
    assert Truncated(7.0).prepared(Start()).memory[0] == 7.0


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
        ({"learner": ("momentum", 1.0)}, r"beta of momentum must lie in \[0, 1\)"),
        ({"learner": ("truncated", 0.0)}, "truncation level must be positive"),
        ({"learner": ("truncated", 1.0, 1.5), "penalty": "l1", "alpha": 0.1}, "takes no penalty"),
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
