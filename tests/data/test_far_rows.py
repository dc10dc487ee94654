"""Bad rows in pieces are left out as in memory, wherever the rows are; honest tails are not."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

import tailproof as tp
from pieces_data import interrupted, write_parquet
from tailproof.core.populations import Populations
from tailproof.data import fit
from tailproof.data.bounds import Bounds, TailCounts
from tailproof.data.readers.batches import Batch

N, D = 3_000, 4
REGRESSORS = {
    "DC": lambda: tp.DCSGDRegressor(k=20, random_state=0),
    "RV": lambda: tp.RVSGDRegressor(random_state=0),
}
SPOILT = {
    "targets 1e3": lambda X, y, bad: y.__setitem__(bad, 1e3),
    "rows 1e6": lambda X, y, bad: X.__setitem__(bad, 1e6),
    "cells 1e12": lambda X, y, bad: X.__setitem__((bad, bad % D), 1e12),
}


def drawn(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    return X, X.sum(axis=1) + rng.standard_normal(n), rng


def spoilt(kind, share, seed=0):
    X, y, rng = drawn(seed)
    bad = rng.choice(N, round(share * N), replace=False)
    SPOILT[kind](X, y, bad)
    return X, y


def chunks(X, y, count=6):
    return [(X[i::count], y[i::count]) for i in range(count)]


def excess(model):
    return float(np.sum((model.coef_ - 1) ** 2) + model.intercept_**2)


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("name", REGRESSORS)
def test_one_percent_is_left_out_and_said(name, kind):
    clean = excess(tp.fit(REGRESSORS[name](), chunks(*drawn()[:2])))
    with pytest.warns(tp.TwoPopulationsWarning, match=r"30 of all 3,000 rows have .* left out as errors"):
        model = tp.fit(REGRESSORS[name](), chunks(*spoilt(kind, 0.01)))
    assert model.report_.far_rows == 30
    assert excess(model) <= 3 * max(clean, 0.005)


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("name", REGRESSORS)
def test_many_are_kept_and_said_and_do_no_more_harm_than_to_least_squares(name, kind):
    X, y = spoilt(kind, 0.3)
    with pytest.warns(tp.TwoPopulationsWarning, match="two populations"):
        model = tp.fit(REGRESSORS[name](), chunks(X, y))
    assert excess(model) <= 1.25 * excess(LinearRegression().fit(X, y))
    assert model.report_.far_rows == 0
    assert "says nothing" in model.report_.verdict()[0] or name == "RV"


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("bad", [1, 900])
def test_rows_that_the_sample_has_not_seen(bad, as_rows):
    """The first look ends before them: one is left out, and many are found to be too many."""
    X, y, _ = drawn(n=12_000)
    X[-bad:, 1] = 1e6
    data = [(as_rows(X[:6_000]), y[:6_000]), (as_rows(X[6_000:]), y[6_000:])]
    said = "left out as errors" if bad == 1 else "too many to be left out"
    with pytest.warns(tp.TwoPopulationsWarning, match=rf"{bad:,} of all 12,000 rows have feature 1.*{said}"):
        model = tp.fit(tp.DCSGDRegressor(k=5, max_iter=2, shuffle=True, random_state=0), data, shuffle=True)
    assert model.report_.far_rows == (1 if bad == 1 else 0)
    assert excess(model) < (0.1 if bad == 1 else 1.25 * excess(LinearRegression().fit(X, y)))


def test_all_rows_are_kept_on_request():
    X, y = spoilt("rows 1e6", 0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tp.TwoPopulationsWarning)
        model = tp.fit(tp.DCSGDRegressor(drop_glitches=False, max_iter=1, random_state=0), chunks(X, y))
    assert model.report_.far_rows == 0
    assert "rows in pieces are all kept" in model.report_.outlying


def test_classifiers_leave_out_far_rows_but_no_class():
    X, y, rng = drawn()
    labels = np.where(y + rng.logistic(size=N) > 0, "yes", "no")
    plain = tp.fit(tp.DCSGDClassifier(k=5, random_state=0), chunks(X, labels))
    bad = X.copy()
    bad[::100, 2] = 1e9
    with pytest.warns(tp.TwoPopulationsWarning, match="left out as errors"):
        model = tp.fit(tp.DCSGDClassifier(k=5, random_state=0), chunks(bad, labels))
    assert tp.score(model, chunks(X, labels)) > tp.score(plain, chunks(X, labels)) - 0.01
    labels[:] = "no"
    labels[::100] = "yes"
    with pytest.warns(tp.TwoPopulationsWarning):
        model = tp.fit(tp.DCSGDClassifier(k=5, max_iter=1, random_state=0), chunks(bad, labels))
    assert model.report_.far_rows == 0


def test_an_interrupted_fit_leaves_out_the_same_rows(tmp_path):
    X, y = spoilt("targets 1e3", 0.01)
    paths = write_parquet(tmp_path, chunks(X, y, 3))
    model = tp.DCSGDRegressor(k=5, max_iter=3, random_state=0)

    def fitted(**more):
        with pytest.warns(tp.TwoPopulationsWarning):
            return tp.fit(model, paths, **more)

    whole = fitted().coef_.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit.RowsInPieces, "intercept_shift", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tp.fit(model, paths, checkpoint=tmp_path / "mark", checkpoint_seconds=0)
    resumed = fitted(checkpoint=tmp_path / "mark")
    np.testing.assert_array_equal(resumed.coef_, whole)
    assert resumed.report_.far_rows == 30


LAWS = {
    "log-normal(1.75)": lambda rng, n: rng.lognormal(0, 1.75, n),
    "Pareto(1.5)": lambda rng, n: rng.pareto(1.5, n),
    "t(3)": lambda rng, n: rng.standard_t(3, n),
    "claims among zeros": lambda rng, n: np.where(rng.random(n) < 0.01, rng.lognormal(5, 1.5, n), 0.0),
    "a rare wide population": lambda rng, n: rng.normal(size=n) * np.where(rng.random(n) < 5e-4, 100, 1),
}


@pytest.mark.parametrize("law", LAWS)
def test_nothing_is_left_out_of_honest_tails(law):
    """Not even where the sample of 1,000 rows has not seen how far the tail of 20,000 reaches."""
    alarms = 0
    for seed in range(20):
        values = LAWS[law](np.random.default_rng(seed), 20_000)
        X = np.zeros((20_000, 1))
        bounds = Bounds.of_sample(X[:1_000], values[:1_000], Populations(1_000), 20_000)
        measure = TailCounts(bounds, np.empty(0))
        batch = Batch(0, 0, X, values, np.empty(0), np.empty(0, dtype=np.intp))
        alarms += bool(measure.settled(measure.on_batch(batch))[1].any())
    assert alarms <= 1
