"""Derivatives that a pass adds up, against differences of the sums that they are derivatives of."""

import numpy as np
import pytest

from tailproof.native.size_pass import (
    SizePass,
    SizePassSums,
    numbers_of_derivatives,
    score_derivatives,
    size_derivatives,
)
from tailproof.native.size_scores import SizedScore, SizeModel, SizeSlopes

STEP = 1e-6


class Pass:
    """Rows, and a pass over them with any θ, κ and γ of sizes, and θ and κ of a score."""

    def __init__(self, n, d, columns, both_sides, weighted=True):
        random = np.random.default_rng([n, d, both_sides])
        self.X, self.y = 1.0 + random.standard_normal((n, d)), random.standard_t(3, n)
        self.v = random.random(n) if weighted else None
        self.asked = SizePass(random.random(d), random.uniform(0.5, 2.0, d), None, 2, 3, 0.0, 0.0)
        self.columns, self.both_sides, self.width = np.array(columns), both_sides, d + 1
        self.features = len(columns) * (2 if both_sides else 1) + 1
        self.size = np.concatenate([random.standard_normal(d + 1), [0.2], 0.2 * random.random(self.features)])
        self.score = np.append(random.standard_normal(d + 1), 0.1)
        self.psi = np.sort(random.standard_normal(6)), np.sort(random.standard_normal(6))

    def sums(self, size, score, differentiated=False, scored=True):
        theta, kappa, gamma = np.split(size, [self.width, self.width + 1])
        model = SizeModel(
            self.columns, self.both_sides, gamma, 50.0, -90.0, 90.0, float(kappa[0]), 1.1, 0.3, 0.1
        )
        psi = SizedScore.of(score[:-1], float(score[-1]), *self.psi) if scored else None
        adding = SizePassSums(model, SizeSlopes.of(theta, theta, model), self.asked, psi, differentiated)
        adding.add(self.X, self.y, self.v, np.arange(len(self.y)), np.zeros(len(self.y)))
        return adding

    def of_size(self, change):
        return self.sums(self.size + change, self.score).scores[: self.size.size]

    def of_score(self, change):
        score, gamma = np.split(change, [self.width + 1])
        size = self.size + np.append(np.zeros(self.width + 1), gamma)
        return self.sums(size, self.score + score).of_score


def differences(sums, count):
    return -np.column_stack([(sums(h) - sums(-h)) / (2 * STEP) for h in STEP * np.eye(count)])


@pytest.mark.parametrize(
    ("n", "d", "columns", "both_sides"),
    [(1, 1, [0], False), (16, 4, [1], True), (201, 5, [4, 0], False), (60, 2, [0, 1], True)],
)
def test_they_are_what_small_changes_make(n, d, columns, both_sides):
    rows = Pass(n, d, columns, both_sides)
    found = rows.sums(rows.size, rows.score, differentiated=True).derivatives
    by_size, of_score = np.split(found, [numbers_of_derivatives(rows.width, rows.features)[0]])
    expected = differences(rows.of_size, rows.size.size)
    shape = rows.width, rows.features
    np.testing.assert_allclose(size_derivatives(by_size, *shape), expected, rtol=1e-5, atol=1e-6)
    expected = differences(rows.of_score, rows.size.size)
    np.testing.assert_allclose(score_derivatives(of_score, *shape), expected, rtol=1e-5, atol=1e-6)


def test_they_change_no_other_sum_and_need_no_score_and_no_weights():
    rows = Pass(100, 3, [1], False, weighted=False)
    plain, both = (rows.sums(rows.size, rows.score, asked) for asked in (False, True))
    assert plain.derivatives.size == 0
    assert np.array_equal(plain.scores, both.scores)
    assert np.array_equal(plain.of_score, both.of_score)
    alone = rows.sums(rows.size, rows.score, differentiated=True, scored=False)
    count = numbers_of_derivatives(rows.width, rows.features)[0]
    assert np.array_equal(alone.derivatives, both.derivatives[:count])


def test_without_rows_they_are_zero():
    rows = Pass(0, 3, [1], False)
    assert not rows.sums(rows.size, rows.score, differentiated=True).derivatives.any()
