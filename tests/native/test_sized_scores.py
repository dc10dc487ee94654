"""Sums of a score of noise over sizes that are known, against the same written with whole arrays."""

import numpy as np
import pytest

from tailproof.native.size_pass import SizePass, SizePassSums
from tailproof.native.size_scores import SizedScore, SizeModel, SizeSlopes, sized_score_sums, sizes_of_rows


def score_of(random, width, knots=7):
    psi = np.sort(random.standard_normal(knots)), np.sort(random.standard_normal(knots))
    return SizedScore.of(random.standard_normal(width), 0.3, *psi)


def by_arrays(Z, y, v, sizes, score):
    psi = np.interp((y - Z @ score.theta) / sizes - score.kappa, score.knots, score.values)
    return np.append((v * psi / sizes) @ Z, v @ psi)


@pytest.mark.parametrize("knots", [1, 2, 40])
@pytest.mark.parametrize("width", [1, 4, 9])
@pytest.mark.parametrize("n", [0, 1, 16, 131])
def test_sums(n, width, knots):
    random = np.random.default_rng([n, width])
    Z, y, v = random.standard_normal((n, width)), random.standard_t(2, n), random.random(n)
    sizes, score = np.exp(random.standard_normal(n)), score_of(random, width, knots)
    expected = by_arrays(Z, y, v, sizes, score)
    np.testing.assert_allclose(sized_score_sums(Z, y, v, sizes, score), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_pass_over_rows_as_they_are_adds_up_the_same(weighted):
    random = np.random.default_rng(0)
    n, d = 200, 5
    X, y, v = random.standard_normal((n, d)), random.standard_t(2, n), random.random(n)
    offset, scale = random.standard_normal(d), random.uniform(0.5, 2.0, d)
    model = SizeModel(np.array([1]), True, np.array([0.4, 0.2, 0.1]), 1.5, -0.6, 100.0, 0.2, 0.9, 0.1, -0.3)
    slopes, score = (
        SizeSlopes.of(random.standard_normal(d + 1), np.zeros(d + 1), model),
        score_of(random, d + 1),
    )
    adding = SizePassSums(model, slopes, SizePass(offset, scale, None, 3, 4, 0.0, 0.0), score)
    for part in (slice(0, 70), slice(70, n)):
        given = v[part] if weighted else None
        adding.add(X[part], y[part], given, np.arange(n)[part], np.zeros(len(y[part])))
    Z, weights = np.column_stack([(X - offset) / scale, np.ones(n)]), v if weighted else np.ones(n)
    expected = by_arrays(Z, y, weights, sizes_of_rows(Z, model), score)
    np.testing.assert_allclose(adding.of_score, expected, rtol=1e-10, atol=1e-11)


def test_what_is_no_number_stays_none():
    random = np.random.default_rng(0)
    Z, ones = random.standard_normal((20, 2)), np.ones(20)
    y = np.where(np.arange(20) == 3, np.nan, ones)
    assert np.isnan(sized_score_sums(Z, y, ones, ones, score_of(random, 2))).all()


@pytest.mark.parametrize("wrong", ["y", "sizes", "theta"])
def test_shapes_that_do_not_fit_are_refused(wrong):
    random = np.random.default_rng(0)
    score, rows = score_of(random, 2), {name: np.ones(20) for name in ("y", "v", "sizes")}
    if wrong == "theta":
        score = score._replace(theta=np.ones(3))
    else:
        rows[wrong] = np.ones(19)
    with pytest.raises(ValueError, match=wrong):
        sized_score_sums(np.ones((20, 2)), rows["y"], rows["v"], rows["sizes"], score)
