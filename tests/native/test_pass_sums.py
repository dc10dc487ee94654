"""All sums of one pass over rows in pieces, beside the same in NumPy."""

from dataclasses import fields, replace

import numpy as np
import pytest

from tailproof.estimators.robust_regressor.levels import Levels, influence, psi_slopes
from tailproof.estimators.robust_regressor.tuning import DEFAULT
from tailproof.native.pass_sums import NOT_LEVELS, PassQuery, PassSums, PassTotals

LEVELS = Levels(np.array([3.0, 0.5, np.inf]), np.zeros(3), np.zeros(3), np.array([4.7, 0.0, 0.0]))
M, GUARDS, BLOCKS, RUN = 3, 32, 3, 5


def query_of(rng, d):
    every = M + NOT_LEVELS + 1
    return PassQuery(
        slopes=rng.standard_normal((every, d)) / np.sqrt(d),
        constants=rng.standard_normal(every),
        shifts=rng.standard_normal(every - 1),
        tau=LEVELS.tau,
        tukey=LEVELS.bisquare,
        floor=DEFAULT.truncated_curvature,
        centre=np.array([0.3, -0.2, 0.1]),
        reach=np.array([0.8, 0.0, 2.0]),
        plain=2,
        far_centre=rng.standard_normal(d),
        far_weight=rng.uniform(0, 2, d),
        to_leverage=rng.standard_normal((4, d)),
        leverage_constants=rng.standard_normal(4),
        size_tau=3.0,
        size_tukey=True,
        middle=0.2,
        offset=0.1,
        share=0.4,
        guards=GUARDS,
        blocks=BLOCKS,
        run=RUN,
    )


def nothing(d):
    apart = M + NOT_LEVELS
    shapes = [(M, d + 1), (M, GUARDS), d, d, d + 1, 1, 5, (M, BLOCKS), (M, BLOCKS), BLOCKS, (M, 2), (M, 2)]
    return PassTotals(*(np.zeros(shape) for shape in [*shapes, (M, M), 1, apart, (apart, apart)]))


def by(places, values, count):
    return np.array([values[..., places == place].sum(axis=-1) for place in range(count)]).T


def of_every_pass(query, X, y, v, numbers):
    """Sums that all passes have, with residuals and ψ of every level."""
    r = y - query.constants[:M, None] - query.slopes[:M] @ X.T
    psi, rho = influence(r, LEVELS)
    t = np.log(np.abs(r[0] - 0.2) + 0.1) - 0.4 * psi[0] - X @ query.slopes[-1] - query.constants[-1]
    ones = np.column_stack([X, np.ones(len(X))])
    return (r, psi), {
        "gradient": (psi * v) @ ones,
        "value": by(numbers % GUARDS, rho * v, GUARDS),
        "row": v @ X,
        "row_squares": v @ X**2,
        "sizes_by_column": (v * t) @ ones,
        "size_squares": [v @ t**2],
        "sizes": [v.sum(), v @ v, len(X), 0, 0],
    }


def of_first_pass(r, v, numbers):
    block = numbers // RUN % BLOCKS
    sums = {"residuals": v * r, "squares": v * r**2, "weights": v}
    return {name: by(block, values, BLOCKS) for name, values in sums.items()}


def of_later_passes(query, X, v, r, psi):
    h = (X - query.far_centre) ** 2 @ query.far_weight
    fitted = X @ query.slopes.T
    others = fitted[:, M : M + NOT_LEVELS]
    apart = np.column_stack([fitted[:, [query.plain]] - fitted[:, :M], others]) - query.shifts
    x = (r - query.centre[:, None]) / np.where(query.reach > 0, query.reach, np.inf)[:, None]
    inside = np.clip(x, -np.sqrt(2), np.sqrt(2))
    catoni = np.stack([inside - inside**3 / 6, np.where(np.abs(x) <= np.sqrt(2), 1 - x**2 / 2, 0.0)])
    slopes = v * psi_slopes(r, LEVELS, DEFAULT, exact=True)
    return {
        "psi": (catoni @ v).T * (query.reach > 0)[:, None],
        "curves": np.column_stack([slopes.sum(axis=1), (slopes * r).sum(axis=1)]),
        "products": (psi * v * h) @ (psi * v).T,
        "reach": [v @ h],
        "apart": v @ apart,
        "apart_products": (apart.T * v) @ apart,
    }, h


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 1), (127, 3), (128, 4), (1_001, 20), (70, 500)])
def test_sums_are_those_of_numpy(n, d, first, weighted):
    rng = np.random.default_rng([n, d])
    X, y, query = rng.standard_normal((n, d)), rng.standard_t(2, n), query_of(rng, d)
    v = rng.uniform(0.5, 2, n) if weighted else np.ones(n)
    numbers = np.sort(rng.choice(3 * n + 1, n, replace=False)).astype(np.int64) + 10**10
    into = nothing(d)
    away = PassSums(query, into, first).add(X, y, v if weighted else None, numbers)
    (r, psi), expected = of_every_pass(query, X, y, v, numbers)
    later, h = of_later_passes(query, X, v, r, psi)
    expected |= of_first_pass(r, v, numbers) if first else later
    for field in fields(PassTotals):
        found = getattr(into, field.name)
        np.testing.assert_allclose(
            found, expected.get(field.name, np.zeros(found.shape)), rtol=1e-9, atol=1e-9, err_msg=field.name
        )
    leverages = ((X @ query.to_leverage.T + query.leverage_constants) ** 2).sum(axis=1)
    np.testing.assert_allclose(away, leverages if first else h, rtol=1e-12, atol=1e-12)


def test_rows_are_added_to_what_is_there():
    rng = np.random.default_rng(0)
    X, y, numbers = rng.standard_normal((300, 3)), rng.standard_t(2, 300), np.arange(300)
    query = query_of(rng, 3)
    whole, parts = nothing(3), nothing(3)
    PassSums(query, whole, False).add(X, y, None, numbers)
    adding = PassSums(query, parts, False)
    for part in (slice(0, 131), slice(131, 300)):
        adding.add(X[part], y[part], None, numbers[part])
    for field in fields(PassTotals):
        np.testing.assert_allclose(getattr(parts, field.name), getattr(whole, field.name), rtol=1e-9)


def test_numbers_that_are_missing_are_not_lost():
    rng = np.random.default_rng(0)
    X, y, into = rng.standard_normal((50, 2)), rng.standard_normal(50), nothing(2)
    y[7] = np.nan
    PassSums(query_of(rng, 2), into, False).add(X, y, None, np.arange(50))
    assert np.isnan(into.gradient).all()
    assert np.isnan(into.size_squares).all()
    assert np.isfinite(into.row).all()


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(0)
    query, rows = query_of(rng, 2), (rng.standard_normal((4, 2)), np.zeros(4), None, np.arange(4))
    for bad in (replace(query, plain=3), replace(query, run=0), replace(query, guards=0)):
        with pytest.raises(ValueError, match="a pass needs"):
            PassSums(bad, nothing(2), True)
    with pytest.raises(ValueError, match="to_leverage must have shape"):
        PassSums(replace(query, to_leverage=np.zeros((4, 3))), nothing(2), True)
    with pytest.raises(ValueError, match="gradient"):
        PassSums(query, replace(nothing(2), gradient=np.zeros((3, 2))), True)
    with pytest.raises(ValueError, match="numbers"):
        PassSums(query, nothing(2), True).add(*rows[:3], np.arange(3))
