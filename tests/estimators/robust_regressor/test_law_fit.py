"""Slopes across the columns that noise grows along, by the law of what is left of it over its size."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, optimize
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.estimators.robust_regressor import law_equations, proposals, second_fit, sized_steps
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit
from tailproof.estimators.robust_regressor.law_fit import fit_law
from tailproof.estimators.robust_regressor.led_by_some import law_led_by_some
from tailproof.estimators.robust_regressor.noise_equations import across, constant_of
from tailproof.estimators.robust_regressor.row_tiles import as_scaled_columns, scaled_tiles
from tailproof.estimators.robust_regressor.scale_family import ScaleFamily

GROWS = "across these columns with the score that suits the noise best"


def skewed(seed, n, d=4, size=None):
    rng = np.random.default_rng([seed, 41])
    z = rng.standard_normal((n, d))
    sizes = np.exp(0.7 * z[:, 0]) if size is None else size(z)
    return z, z.sum(axis=1) + sizes * (rng.lognormal(0, 1.2, n) - np.exp(0.72))


def fitted(X, y):
    return tp.RobustRegressor(random_state=0).fit(X, y)


def errors_across(model):
    return float(np.sum((model.coef_[1:] - 1) ** 2))


def size_fit(seed, n, d=4, columns=(0,)):
    z, y = skewed(seed, n, d)
    columns = np.array(columns)
    f = np.column_stack([z[:, columns], np.abs(z[:, columns]), np.ones(n)])
    family = ScaleFamily(np.column_stack([z, np.ones(n)]), y, f, np.full(n, 1 / n))
    return SizeFit.of(family, family.solve(np.log(np.abs(y - z.sum(axis=1)) + 0.3)), columns)


@pytest.fixture(scope="module")
def solved():
    """What a fit on many rows solves: law, sizes and rows."""
    kept, real = [], second_fit.solved_by_law

    def keep(law, size, rows):
        kept.append((real(law, size, rows), size, rows))
        return kept[0][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second_fit, "solved_by_law", keep)
        fitted(*skewed(0, 12_000))
    return kept[0]


def test_what_is_across_is_not_correlated_with_columns():
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.standard_normal((500, 4)) @ rng.standard_normal((4, 4)), np.ones(500)])
    B = np.linalg.inv(np.linalg.cholesky(Z.T @ Z / 500)).T  # white rows are ZB
    projection = across(B, np.array([1, 3]))
    np.testing.assert_allclose(projection @ projection, projection, atol=1e-9)
    assert round(np.trace(projection)) == 2
    functions = Z @ B @ projection
    np.testing.assert_allclose(functions.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(Z[:, [1, 3]].T @ functions / 500, 0, atol=1e-9)


def test_slopes_across_are_found_better_than_by_sizes_alone():
    gaps, promised = [], []
    for seed in range(8):
        fit = size_fit(seed, 3_000)
        law = fit_law(fit, np.eye(5))
        gaps.append([np.sum((one.phi[1:4] - 1) ** 2) for one in (law.weighted(), fit)])
        promised.append(law.variance)
        np.testing.assert_allclose(law.weighted().phi[0], fit.phi[0])
    better = np.divide(*np.sum(gaps, axis=0))
    assert better < 0.5
    assert better / 4 < np.median(promised) < 0.75


def test_where_noise_grows_along_all_columns_there_is_no_slope_across():
    assert fit_law(size_fit(0, 2_000, columns=(0, 1, 2, 3)), np.eye(5)) is None


def test_a_law_of_a_few_rows_with_next_to_no_noise_is_none():
    fit = size_fit(0, 2_000)
    sizes = fit.sizes.copy()
    sizes[:20] = 1e-3
    assert fit_law(fit, np.eye(5)) is not None
    assert fit_law(replace(fit, sizes=sizes), np.eye(5)) is None


def test_it_solves_its_equations_on_all_rows(solved):
    """Scores as the formulas have them vanish, but for that of the constant, which is the fit by size's."""
    law, size, rows = solved
    Z = np.concatenate([tile for _, tile in scaled_tiles(rows)])
    s, constant = size.sizes(Z), constant_of(law.map)
    slopes = law.map @ linalg.null_space(constant[None])
    level = law.theta - slopes @ np.linalg.lstsq(slopes, law.theta)[0]

    def scores(place):
        u = (rows.y - Z @ (level + slopes @ place[:-1])) / s - place[-1]
        psi = np.interp(u, law.score.knots, law.score.values)
        return np.append((psi / s) @ Z @ slopes, psi.sum()) / rows.n

    start = np.append(np.linalg.lstsq(slopes, law.theta)[0], law.kappa)
    found = optimize.root(scores, start, tol=1e-12)
    assert found.success
    part = law.part_across(slopes @ (found.x - start)[:-1])
    assert np.linalg.norm(part) < 0.01 * law.error / np.sqrt(rows.n)
    there = np.linalg.lstsq(law.map, law.theta - size.theta)[0]
    assert abs(constant @ there) < 1e-9 * np.linalg.norm(there)


def test_steps_that_do_not_settle_are_newton_s(solved, monkeypatch):
    law, size, rows = solved
    monkeypatch.setattr(sized_steps, "solved_by_steps", lambda *_: None)
    away = replace(law, theta=law.theta + 5 * law.map @ law.part_across(np.ones(law.theta.size)))
    again = sized_steps.solved_by_law(away, size, rows)
    assert np.linalg.norm(law.part_across(again.theta - law.theta)) < 0.01 * law.error / np.sqrt(rows.n)


def test_a_score_that_no_row_has_a_slope_in_leads_nowhere(solved):
    """As where most of the noise is one value: a step of zero is no sign that the sums vanish."""
    law, size, rows = solved
    flat = replace(law, score=replace(law.score, knots=np.array([1e9, 2e9]), values=np.array([-1.0, 1.0])))
    assert sized_steps.solved_by_law(flat, size, rows) is None


def test_some_rows_lead_to_where_all_of_them_are_solved(solved):
    """By sums of all rows elsewhere, with other sizes."""
    law, size, rows = solved
    before = replace(size, gamma=size.gamma + np.array([0.03, -0.02, 0.0]))
    here = sized_steps.solved_by_law(law, before, rows.take(np.arange(4_000)))
    sums = here.sums_over(rows, sized_steps.sizes_over_rows(before, rows))
    some = rows.take(np.arange(0, rows.n, 2))
    there, way = law_led_by_some(here, sums, before, size, some)
    gaps = [np.linalg.norm(law.part_across(one.theta - law.theta)) for one in (here, there)]
    error = law.error / np.sqrt(rows.n)
    assert gaps[0] > 0.5 * error
    assert gaps[1] < 0.3 * gaps[0]
    assert 0.5 * gaps[0] < way * law.whole_error / np.sqrt(rows.n)


def test_derivatives_are_those_of_sums(solved):
    law, size, rows = solved
    Z = np.concatenate([tile for _, tile in scaled_tiles(rows)])
    s, v = size.sizes(Z), rows.weights
    u = (rows.y - Z @ law.theta) / s - law.kappa
    slopes = law.score.slopes(u)
    slopes = np.maximum(slopes, 0.1 * np.average(slopes, weights=v))
    a = np.column_stack([(Z @ law.map) / s[:, None], np.ones(rows.n)])
    free = linalg.block_diag(linalg.null_space(constant_of(law.map)[None]), 1.0)
    derivatives = free.T @ ((a.T * (v * slopes)) @ a) @ free / v.sum()
    expected = free @ np.linalg.inv(derivatives) @ free.T
    np.testing.assert_allclose(law.curved(Z, rows.y, v, s).inverse, expected, rtol=1e-6, atol=1e-9)


def test_rows_in_any_coordinates_have_the_same_sums(solved):
    law, size, rows = solved
    Z = np.concatenate([tile for _, tile in scaled_tiles(rows)])
    s, v, white = size.sizes(Z), rows.weights, rows.whitened()
    psi = law.score.at((rows.y - Z @ law.theta) / s - law.kappa)
    sums = np.concatenate([Z.T @ (v * psi / s), [v @ psi, v.sum(), v @ v]])
    assert [rows.in_basis, white.in_basis] == [False, True]
    for same in (rows, white, as_scaled_columns(white)):
        np.testing.assert_allclose(law.sums_over(same, s), sums, rtol=1e-8, atol=1e-8 * np.abs(sums).max())


def test_the_share_falls_with_the_square_of_the_distance(solved):
    law, size, _ = solved
    own, far = law.part_across(law.theta - size.theta), law.map @ law.part_across(np.ones(size.theta.size))
    near = law.taken_over(size, 12_000)
    gap = law.part_across(near.theta - size.theta)
    share = min(law.gain / 12_000 / max(own @ own, law.variance / 12_000), 1.0)
    np.testing.assert_allclose(gap, share * own, atol=1e-12)
    away = replace(law, theta=size.theta + 100 * far).taken_over(size, 12_000)
    further = replace(law, theta=size.theta + 200 * far).taken_over(size, 12_000)
    np.testing.assert_allclose(
        further.theta - size.theta, (away.theta - size.theta) / 2, rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize("noise", ["exponential", "straight"])
def test_the_model_is_better_across_and_as_good_along(noise, monkeypatch):
    """Also where the size of the noise is not as it is modelled."""
    size = None if noise == "exponential" else lambda z: 1 + 0.5 * np.maximum(z[:, 0], 0)
    used, gaps, all_gaps = 0, [], []
    for seed in range(8):
        X, y = skewed(seed, 20_000, 6, size)
        ours = fitted(X, y)
        used += any(GROWS in remark for remark in ours.report_.remarks)
        with monkeypatch.context() as patch:
            patch.setattr(proposals, "fit_law", lambda *_: None)
            by_sizes = fitted(X, y)
        gaps.append([errors_across(one) for one in (ours, by_sizes)])
        all_gaps.append([np.sum((one.coef_ - 1) ** 2) for one in (ours, by_sizes)])
    assert used >= 6
    assert np.median(np.divide(*np.transpose(gaps))) < 0.5
    assert np.divide(*np.sum(all_gaps, axis=0)) < 1.0


def test_where_sizes_are_modelled_wrongly_slopes_across_stay():
    """Least squares of many rows contradicts the slope along the column, and no other."""
    rejected, ratios = 0, []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, noise = rng.standard_normal((600_000, 6)), rng.lognormal(0, 1.75, 600_000) - np.exp(1.75**2 / 2)
        y = X.sum(axis=1) + (1 + 0.3 * X[:, 0]) * noise
        model = fitted(X, y)
        rejected += any("along them 0%" in remark for remark in model.report_.remarks)
        ratios.append(errors_across(model) / errors_across(LinearRegression().fit(X, y)))
    assert rejected >= 2
    assert max(ratios) < 0.1


def test_symmetric_noise_has_no_law_that_is_worth_it():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 4))
    y = X.sum(axis=1) + np.exp(0.7 * X[:, 0]) * rng.standard_normal(12_000)
    remarks = fitted(X, y).report_.remarks
    assert any("grows along some columns" in remark for remark in remarks)
    assert not any(GROWS in remark for remark in remarks)


@pytest.mark.parametrize("shift", [-30.0, -1.0, 0.0, 2.5, 400.0])
def test_the_middle_is_where_the_mean_of_the_score_vanishes(shift):
    rng = np.random.default_rng(3)
    noise, v = rng.lognormal(0, 1.2, 2_000) + shift, rng.uniform(0.5, 2, 2_000)
    score = law_equations.MonotoneScore(np.array([-1.0, 0.0, 500.0]) + 0.3, np.array([-2.0, 0.5, 3.0]))
    found = law_equations._middle(score, noise, v)
    psi = score.at(noise - found)
    if score.slopes(noise).any():
        assert abs(v @ psi) < 0.02 * np.sqrt(v @ v) * psi.std()
    else:
        assert found == 0.0
