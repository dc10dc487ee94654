"""Slopes on many rows by what those that choose have learned: more rows do not make it worse."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

import tailproof as tp
from tailproof.core.losses import LOSSES
from tailproof.data.second_passes import longer
from tailproof.data.second_sums import PassRows, SecondPass
from tailproof.estimators.inputs import seed_from_random_state
from tailproof.estimators.robust_regressor import second_fit
from tailproof.estimators.robust_regressor.compared import few_rows
from tailproof.estimators.robust_regressor.led_by_some import led_by_some, scores_over_rows
from tailproof.estimators.robust_regressor.monotone_score import learn_score
from tailproof.estimators.robust_regressor.noise_equations import BySize
from tailproof.estimators.robust_regressor.row_tiles import in_scaled_columns, scaled_tiles
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.score_equations import ByScore
from tailproof.estimators.robust_regressor.sized_steps import mixed

SCORE, SIZE = "score that suits the noise", "grows along some columns: slopes are fitted once more"
LAWS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "log-normal": lambda rng, n: rng.lognormal(0, 1.2, n) - np.exp(0.72),
    "Pareto": lambda rng, n: rng.pareto(2.1, n) - 1 / 1.1,
}


def rows(seed, n, d=3, law="log-normal", growth=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + np.exp(growth * X[:, 0]) * LAWS[law](rng, n)


def fitted(X, y, **settings):
    return tp.RobustRegressor(random_state=0, **settings).fit(X, y)


def was(model, what):
    return any(what in remark for remark in model.report_.remarks)


def error(model):
    return np.linalg.norm(model.coef_ - 1)


def plain_error(X, y):
    Z = np.column_stack([X, np.ones(len(X))])
    return np.linalg.norm(np.linalg.lstsq(Z, y, rcond=None)[0][:-1] - 1)


@pytest.mark.parametrize(
    ("law", "growth", "what"),
    [("log-normal", 0.0, SCORE), ("Pareto", 0.0, SCORE), ("log-normal", 0.7, SIZE), ("normal", 0.7, SIZE)],
)
def test_four_times_the_rows_halve_the_error(law, growth, what):
    few, many, plain, refined = [], [], [], []
    for seed in range(15):
        X, y = rows(seed, 16_000, law=law, growth=growth)
        few.append(error(fitted(X[:4_000], y[:4_000])))
        model = fitted(X, y)
        refined.append(was(model, what))
        many.append(error(model))
        plain.append(plain_error(X, y))
    assert sum(refined) >= 12  # by chance noise may seem to grow along a column
    few, many, plain = (np.exp(np.mean(np.log(each))) for each in (few, many, plain))  # each draw has a say
    assert many < 0.65 * few
    assert many < 0.5 * plain


def test_normal_noise_stays_with_least_squares():
    X, y = rows(0, 12_000, law="normal")
    model = fitted(X, y)
    assert not was(model, SCORE)
    assert error(model) < 1.1 * plain_error(X, y)


@pytest.mark.parametrize("kind", ["side", "spread", "bent"])
def test_all_rows_refuse_what_depends_on_x(kind):
    """Skewness, size in a form that is not modelled, and a mean that is not straight."""
    risks = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20_000, 3))
        noise = rng.lognormal(0, 1, 20_000) - np.exp(0.5)
        if kind == "side":
            noise *= np.sign(X[:, 0])
        if kind == "spread":
            noise *= 1 + 2 * (np.abs(X[:, 0] - 1) < 0.3)
        bent = X[:, 1] ** 3 - 3 * X[:, 1] if kind == "bent" else 0.0  # its best straight line is flat
        y = X.sum(axis=1) + bent + noise
        risks.append(error(fitted(X, y)) / plain_error(X, y))
    assert np.median(risks) < 1.15


def test_it_solves_its_equations_on_all_rows():
    X, y = rows(1, 12_000)
    kept = []
    real = second_fit.second_fit

    def watched(path, *rest):
        kept.append((path, real(path, *rest)))
        return kept[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailproof.estimators.robust_regressor.all_rows.second_fit", watched)
        fitted(X, y)
    (path, found) = kept[0]
    Z = np.concatenate([tile for _, tile in scaled_tiles(path.rows)])
    psi = found.equations.score.at(path.rows.y - Z @ found.equations.theta)
    left = path.basis.map.T @ (Z.T @ (psi - psi.mean())) / len(Z) / found.equations.information
    spread = psi.std() / found.equations.information / np.sqrt(len(Z))
    assert np.linalg.norm(left) < 0.01 * spread * np.sqrt(left.size)


def test_weights_count_as_copies():
    X, y = rows(2, 9_000)
    times = np.random.default_rng(0).integers(1, 3, y.size)
    weighted = tp.RobustRegressor(random_state=0).fit(X, y, times)
    copied = fitted(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert was(weighted, SCORE)
    assert was(copied, SCORE)
    assert np.linalg.norm(weighted.coef_ - copied.coef_) < 0.5 * plain_error(X, y)


def test_rows_that_hold_a_surprise_are_refined_too():
    """Then all of them choose, and a few thousand of these learn."""
    X, y = rows(0, 12_000)
    chosen = next(few_rows(12_000, [5_000], seed_from_random_state(0)))
    others = np.setdiff1d(np.arange(12_000), chosen)
    y[others[0]] += 1e6
    model = tp.RobustRegressor(random_state=0, drop_glitches=False).fit(X, y)
    assert model.report_.compared == 12_000
    assert was(model, SCORE)
    assert error(model) < 0.1


def test_intervals_of_many_rows_hold():
    held = []
    for seed in range(40):
        X, y = rows(seed, 6_000, d=2, growth=0.7 * (seed % 2))
        summary = fitted(X, y).summary()
        held.append((summary.low[:2] <= 1) & (summary.high[:2] >= 1))
    assert np.mean(held) >= 0.88


def by_size(width=3):
    rng = np.random.default_rng(0)
    return BySize(
        theta=rng.standard_normal(width),
        kappa=0.3,
        gamma=np.array([0.4, -0.2, 0.1]),
        map=np.eye(width),
        inverse=np.eye(width + 4),
        to_moves=np.eye(width, width + 4),
        tau=1.5,
        offset=0.2,
        middle=0.1,
        least=-1.0,
        reach=2.0,
        columns=np.array([1]),
        both_sides=True,
        error=1.0,
    )


def test_sizes_of_far_rows_grow_but_do_not_shrink():
    z = np.array([0.0, 2.0, 5.0, 1e6, -1.5, -2.0, -5.0])
    Z = np.column_stack([np.zeros(z.size), z, np.ones(z.size)])
    sizes = replace(by_size(), gamma=np.array([1.0, 0.0, 0.0])).sizes(Z)
    np.testing.assert_allclose(np.log(sizes), [0, 2, 5, 100, -1, -1, -1])


def by_score(width=3):
    rng = np.random.default_rng(0)
    score = learn_score(rng.exponential(size=500), np.full(500, 1 / 500))
    return ByScore(score, rng.standard_normal(width), np.eye(width), 0.2, 0.8)


def sums_of_pass(here, X, y, v, plain, away, first=False, parts=1):
    """By a pass over features, some at a time, whose scales and centres it knows."""
    adding = here.adding(PassRows(np.array([0.5, -1.0]), np.array([2.0, 0.7]), 5), plain, first)
    for p in np.array_split(np.arange(len(y)), parts):
        adding.add(X[p], y[p], v[p], 100 + p, away[p])
    return adding.total


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("make", [by_score, by_size])
def test_sums_of_parts_are_those_of_the_whole(make, first):
    rng = np.random.default_rng(3)
    X, y, v, plain = (
        rng.standard_normal((200, 2)),
        rng.exponential(size=200),
        rng.uniform(1, 2, 200),
        np.ones(3),
    )
    whole = SecondPass(make(), 3, 0.1, 2.0)
    away = rng.random(200)
    found, of_parts = (sums_of_pass(whole, X, y, v, plain, away, first, k) for k in (1, 4))
    np.testing.assert_allclose(of_parts, found, rtol=1e-12)
    assert found.size == whole.count
    Z = np.column_stack([(X - [0.5, -1.0]) / [2.0, 0.7], np.ones(200)])
    expected = whole.equations.sums(Z, y, v, plain, np.ones(200) if first else away)
    if first and make is by_size:
        expected[-3:] = 0.0
    np.testing.assert_allclose(whole.of_scores(found), expected, rtol=1e-10)


def test_derivatives_of_sizes_are_those_of_differences():
    """At a solution: noise with mean zero, whose truncated part has its middle at κ."""
    rng = np.random.default_rng(4)
    n = 200_000
    Z = np.column_stack([rng.uniform(-1, 1, (n, 2)), np.ones(n)])
    noise = rng.exponential(size=n) - 1
    middle = optimize.brentq(lambda c: np.clip(noise - c, -1.5, 1.5).mean(), -1, 1)
    start = replace(by_size(), kappa=middle)
    y = Z @ start.theta + start.sizes(Z) * noise
    derivatives = np.linalg.inv(start.curved(start.curvature(Z, y, np.ones(n))).inverse)

    def scores(change):
        theta, kappa, gamma = np.split(change, [3, 4])
        there = replace(
            start, theta=start.theta + theta, kappa=start.kappa + float(kappa[0]), gamma=start.gamma + gamma
        )
        return there.sums(Z, y, np.ones(n), np.zeros(3), np.ones(n))[:7] / n

    found = np.column_stack([(scores(-change) - scores(change)) / 2e-3 for change in np.eye(7) * 1e-3])
    np.testing.assert_allclose(found[:4], derivatives[:4], atol=0.03)
    # The last conditions are centred, which takes the constant's share away from their derivatives.
    f = start.features(Z).mean(axis=0)
    np.testing.assert_allclose(
        found[4:] - np.outer(f, found[-1]), derivatives[4:] - np.outer(f, derivatives[-1]), atol=0.03
    )


def test_steps_that_shrink_by_one_factor_are_summed_up():
    before = np.array([1.0, -2.0])
    for factor in (-0.3, 0.2):
        step = factor * before
        np.testing.assert_allclose(longer(before, step), 1 / (1 - factor))


def test_mixed_steps_solve_linear_equations():
    rng = np.random.default_rng(6)
    A, wanted = np.eye(3) + 0.4 * rng.standard_normal((3, 3)), rng.standard_normal(3)
    places, steps = [np.zeros(3)], []
    for _ in range(4):
        steps.append(A @ (wanted - places[-1]))
        places.append(mixed(places, steps))
    np.testing.assert_allclose(places[-1], wanted, atol=1e-9)


def test_mixed_steps_do_not_follow_directions_that_steps_hardly_tell():
    """As of sizes along a column of two values: z, |z| and 1 are collinear; rounding would be made large."""
    rng = np.random.default_rng(0)
    places = list(rng.standard_normal((3, 2)))
    steps = [np.array([-place[0], 1e-3 + 1e-6 * rng.standard_normal()]) for place in places]
    assert np.linalg.norm(mixed(places, steps)) < 10.0


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_rows_that_stand_for_all_lead_to_where_their_sums_vanish(share):
    """With all rows that is the solution, whatever the weights add up to; with some of them nearly so."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, (4_000, 2))
    y = X.sum(axis=1) + np.exp(0.5 * X[:, 1]) * (rng.exponential(size=4_000) - 1)
    rows = rows_of(X, y, np.ones(4_000), LOSSES["squared_error"], True).whitened()
    start = replace(by_size(), map=rows.whitening.map, reach=10.0, least=-3.0)

    def scores(equations):
        return scores_over_rows(equations, rows) / rows.n

    sums = second_fit.sums_over_rows(start, rows, np.zeros(3), np.ones(4_000))
    some = rows.take(np.arange(0, 4_000, round(1 / share)))
    there, length, change = led_by_some(start, sums, some)
    assert np.abs(scores(there)).max() < (1e-3 if share == 1.0 else 0.2) * np.abs(scores(start)).max()
    np.testing.assert_allclose(there.theta, start.theta + change)
    assert length > 0


def test_rows_with_less_noise_have_more_leverage():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((3_000, 2))
    kept = rows_of(
        X, X.sum(axis=1) + rng.standard_normal(3_000), np.ones(3_000), LOSSES["squared_error"], True
    )
    rows = kept.whitened()
    equations = replace(by_size(), gamma=np.array([1.0, 0.0, 0.0]), least=-3.0, reach=10.0)
    first = SecondPass.of_sample(equations, rows, 3)
    Z = np.concatenate([tile for _, tile in scaled_tiles(rows)])
    leverages = first.leverages(Z)
    assert leverages.mean() == pytest.approx(1.0, abs=0.05)
    assert leverages[Z[:, 1] < -2].mean() > 5 * leverages[np.abs(Z[:, 1]) < 1].mean()
    assert not SecondPass.of_sample(by_score(), rows, 3).leverages(Z).any()


def test_sums_from_whitened_rows_are_those_of_scaled_ones():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 3))
    kept = rows_of(
        X, X.sum(axis=1) + rng.lognormal(size=400), rng.random(400) + 0.5, LOSSES["squared_error"], True
    )
    white, reach = kept.whitened(), rng.random(400)
    score = learn_score(kept.y, np.full(400, 1 / 400))
    equations = ByScore(score, rng.standard_normal(4), white.whitening.map, 0.2, 0.4)
    plain = rng.standard_normal(4)
    np.testing.assert_allclose(
        second_fit.sums_over_rows(equations, white, plain, reach),
        second_fit.sums_over_rows(equations, kept, plain, reach),
        rtol=1e-9,
        atol=1e-9,
    )


def test_scaled_columns_are_made_once_for_all_passes():
    rng = np.random.default_rng(9)
    X = rng.standard_normal((3_000, 2)) @ rng.standard_normal((2, 2))
    y, v = X.sum(axis=1) + rng.standard_normal(3_000), rng.random(3_000) + 0.5
    rows = rows_of(X, y, v, LOSSES["squared_error"], True).whitened()
    once, equations = in_scaled_columns(rows, X), replace(by_size(), least=-3.0, reach=10.0)
    assert in_scaled_columns(once, X) is once
    np.testing.assert_allclose(
        scores_over_rows(equations, once), scores_over_rows(equations, rows), rtol=1e-9
    )
    judged = second_fit.sums_over_rows(equations, rows, np.zeros(3), np.ones(3_000))
    alone = second_fit.sums_for_steps(equations, once, np.zeros(3), np.ones(3_000))
    np.testing.assert_allclose(alone[:-3], judged[:-3], rtol=1e-9)
    assert judged[-3:].all()
    assert not alone[-3:].any()


def test_squares_that_judge_are_added_up_where_a_fit_may_end():
    rng = np.random.default_rng(10)
    here = SecondPass(replace(by_size(), least=-3.0, reach=10.0), 3)
    rows = rng.standard_normal((40, 2)), rng.standard_normal(40), np.ones(40), np.zeros(3), np.ones(40)
    judged = here.of_scores(sums_of_pass(here, *rows))
    for alone in (sums_of_pass(replace(here, judged=False), *rows), sums_of_pass(here, *rows, first=True)):
        np.testing.assert_allclose(here.of_scores(alone)[:-3], judged[:-3])
        assert not here.of_scores(alone)[-3:].any()
    assert judged[-3:].all()
