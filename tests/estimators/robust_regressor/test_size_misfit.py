"""Whether sizes of the noise are as modelled: slopes where they are not give way to least squares."""

from dataclasses import replace

import numpy as np
import pytest

import tailproof as tp
from pieces_data import chunks_of
from robust_pieces import FewChoose
from tailproof.core.losses import LOSSES
from tailproof.estimators.robust_regressor.dependent_noise import fit_on_both_sides
from tailproof.estimators.robust_regressor.noise_equations import expected_derivatives
from tailproof.estimators.robust_regressor.noise_growth import growth_of_noise
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.size_misfit import change_with_bends, trusted_share
from tailproof.estimators.robust_regressor.tuning import DEFAULT

SIZES = {
    "as modelled": lambda x: np.exp(0.5 * x),
    "grows on both sides": lambda x: np.exp(0.3 * np.abs(x)),
    "vanishes": lambda x: np.abs(1 + 0.3 * x),
    "jumps": lambda x: 1 + 2 * (x > 0.5),
}
HELD = ("as modelled", "grows on both sides")


def draw(seed, n, kind):
    rng = np.random.default_rng([seed, 8])
    X = rng.standard_normal((n, 3))
    return X, SIZES[kind](X[:, 0]) * (rng.lognormal(0, 1.5, n) - np.exp(1.125))


def plain_error(X, y):
    """Of the slopes of least squares, which are zero in truth."""
    return np.linalg.norm(np.linalg.lstsq(np.column_stack([X, np.ones(len(y))]), y, rcond=None)[0][:-1])


def fitted(seed, n, kind, weighted=False):
    """A fit by size along the first column, and the rows as scaled columns."""
    X, y = draw(seed, n, kind)
    v = np.random.default_rng(seed).uniform(0.5, 2, n) if weighted else np.ones(n)
    rows = rows_of(X, y, v, LOSSES["squared_error"], True)
    white = rows.whitened()
    growth = replace(growth_of_noise(white, y), columns=np.array([0]))
    fit = fit_on_both_sides(white.X, white.y, v / v.sum(), growth)
    return fit.equations(np.zeros(white.whitening.rank), white.whitening.map), rows


def slow_change(equations, rows):
    """By the scores of every row and the whole inverses, which the definition has."""
    Z = np.concatenate([tile for _, tile in rows.tiles()])
    v = rows.weights / rows.weights.sum()
    z = np.clip(Z[:, 0], -equations.reach, equations.reach)
    bends = np.column_stack([np.abs(z - q) for q in np.quantile(z, [0.02, 0.16, 0.84, 0.98])])
    s, f = equations.sizes(Z), np.column_stack([equations.features(Z), bends])
    noise = (rows.y - Z @ equations.theta) / s
    u = noise - equations.kappa
    size = np.log(np.abs(u) + equations.offset)
    white = Z @ equations.map / s[:, None]
    scores = np.column_stack(
        [
            white * np.clip(u, -equations.tau, equations.tau)[:, None],
            noise,
            f * (size - v @ size)[:, None],
        ]
    )
    every = np.column_stack([white, np.ones(len(v)), f])
    inside, pull = np.abs(u) <= equations.tau, np.sign(u) / (np.abs(u) + equations.offset)
    means = (v @ inside, v @ (inside * noise), v @ pull, v @ (pull * noise))
    moves, rank = 0.0, white.shape[1]
    for count, sign in ((every.shape[1], 1), (every.shape[1] - 4, -1)):
        products = (every[:, :count] * v[:, None]).T @ every[:, :count]
        inverse = np.linalg.inv(expected_derivatives(products, rank, *means))
        moves = moves + sign * v * (scores[:, :count] @ inverse[:rank].T @ equations.map[0])
    return moves.sum(), np.sqrt(np.sum(moves**2))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", SIZES)
def test_changes_are_those_of_the_definition(kind, weighted):
    equations, rows = fitted(0, 3_000, kind, weighted)
    found = [float(each[0]) for each in change_with_bends(equations, rows)]
    np.testing.assert_allclose(found, slow_change(equations, rows), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", SIZES)
def test_chance_is_what_changes_are_where_sizes_are_as_modelled(kind):
    scores, chances, changes = [], [], []
    for seed in range(40):
        (change,), (chance,) = change_with_bends(*fitted(seed, 8_000, kind))
        scores.append(abs(change) / chance)
        changes.append(change)
        chances.append(chance)
    if kind in HELD:
        assert np.mean(np.array(scores) > 2.5) <= 0.1
        assert 0.6 < np.std(changes) / np.mean(chances) < 1.4
    else:
        assert np.median(scores) > 2.5


def test_the_share_weighs_the_bias_against_the_error_of_least_squares():
    equations, rows = fitted(0, 8_000, "jumps")
    (change,), (chance,) = change_with_bends(equations, rows)
    assert change > 3.5 * chance
    bias = 1.5**2 * (change**2 - chance**2)
    for error in (0.0, 0.3 * change, 3.0 * change, 1e6):
        found = trusted_share(equations, rows, np.full(3, error), DEFAULT)
        assert found == pytest.approx(error**2 / (error**2 + bias), rel=1e-9)


def test_columns_of_two_values_have_no_bends():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(6_000) < 0.3, rng.standard_normal(6_000)])
    y = (1 + 2 * X[:, 0]) * (rng.lognormal(0, 1, 6_000) - np.exp(0.5))
    rows = rows_of(X, y, np.ones(6_000), LOSSES["squared_error"], True)
    white = rows.whitened()
    growth = replace(growth_of_noise(white, y), columns=np.array([0]))
    fit = fit_on_both_sides(white.X, white.y, np.full(6_000, 1 / 6_000), growth)
    equations = fit.equations(np.zeros(3), white.whitening.map)
    assert trusted_share(equations, rows, np.full(2, 1e-6), DEFAULT) > 0.99


def test_a_fit_is_not_led_astray_by_sizes_that_bend_otherwise():
    """Before this was asked, risks were up to nine times those of least squares, which did not contradict."""
    against = []
    for seed in range(6):
        X, y = draw(seed, 200_000, "vanishes")
        model = tp.RobustRegressor(random_state=0).fit(X, y)
        against.append(np.linalg.norm(model.coef_) / plain_error(X, y))
    assert np.exp(np.mean(np.log(against))) < 0.7
    assert max(against) < 1.4


@pytest.mark.parametrize("kind", SIZES)
def test_pieces_trust_as_much_as_memory(kind):
    X, y = draw(0, 30_000, kind)
    memory = FewChoose(random_state=0).fit(X, y)
    found = tp.fit(FewChoose(random_state=0), chunks_of(X, y, 3))
    assert np.linalg.norm(found.coef_ - memory.coef_) <= 0.01 * plain_error(X, y)


def test_intervals_know_that_slopes_gave_way():
    held = []
    for seed in range(30):
        X, y = draw(seed, 60_000, "jumps")
        summary = tp.RobustRegressor(random_state=0).fit(X, y).summary()
        held.append(summary.low[0] <= 0 <= summary.high[0])
    assert np.mean(held) >= 0.85
