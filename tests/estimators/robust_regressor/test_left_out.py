"""Leaving a fold out of wide tables: which levels are asked again, and how close they come."""

import numpy as np

from tailproof.core.losses import get_loss
from tailproof.estimators.robust_regressor import left_out
from tailproof.estimators.robust_regressor.levels import level_scores
from tailproof.estimators.robust_regressor.path_solution import solve_path
from tailproof.estimators.robust_regressor.scaled_rows import rows_of
from tailproof.estimators.robust_regressor.tuning import DEFAULT

N, D, FOLD = 240, 90, np.arange(0, 240, 5)
SEEN = ~np.isin(np.arange(N), FOLD)


def path(loss="squared_error"):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = X.sum(axis=1) + rng.lognormal(0, 1.2, N)
    y = y if loss == "squared_error" else rng.poisson(np.exp(0.1 * X.sum(axis=1)))
    loss = get_loss(loss, None, "regression")
    return solve_path(rows_of(X, y, np.ones(N), loss, True), np.random.default_rng(0))


def gradients(found, phi):
    """Over the rows that were not left out, a column a level."""
    rest, levels = found.rows.take(np.flatnonzero(SEEN)), found.levels
    sums = level_scores(rest, phi, levels, hessian=False).gradient
    return sums / rest.n - levels.ridge * found.basis.slopes(phi)


def test_least_squares_is_as_close_as_it_is_said_to_be():
    found = path()
    plain = np.isinf(found.levels.tau)
    before, after = (
        np.linalg.norm(gradients(found, phi), axis=0)
        for phi in (found.phi, left_out._without(found, FOLD, SEEN))
    )
    assert np.all(after[plain] <= DEFAULT.corrected * before[plain])


def test_levels_that_are_close_enough_are_not_asked_again(monkeypatch):
    found, asked, left = path("poisson"), [], []

    def watched(rows, phi, levels, *args, **kwargs):
        scores = level_scores(rows, phi, levels, *args, **kwargs)
        asked.append(list(zip(levels.tau, levels.ridge, levels.bisquare, strict=True)))
        left.append(np.linalg.norm(scores.gradient / rows.n - levels.ridge * found.basis.slopes(phi), axis=0))
        return scores

    monkeypatch.setattr(left_out, "level_scores", watched)
    left_out._without(found, FOLD, SEEN)
    enough = DEFAULT.corrected * np.linalg.norm(gradients(found, found.phi), axis=0)
    every = list(zip(found.levels.tau, found.levels.ridge, found.levels.bisquare, strict=True))
    limits = dict(zip(every, enough, strict=True))
    # The first sums are those of the fold, the second those of the other rows after a step of every level.
    assert asked[0] == asked[1] == every
    for here, sizes, later in zip(asked[1:], left[1:], asked[2:], strict=False):
        assert later == [level for level, size in zip(here, sizes, strict=True) if size > limits[level]]
    assert len(asked[-1]) < len(every)


def test_some_levels_keep_the_residuals_that_are_known():
    found = path()
    every = found.residuals
    some = found.only([2, 0])
    np.testing.assert_array_equal(some.residuals, every[[2, 0]])
    assert "residuals" in vars(some)
    assert "residuals" not in vars(path().only([2, 0]))
