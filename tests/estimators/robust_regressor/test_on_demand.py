"""What only summaries, intervals and reports need is made when it is asked for, from copies."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import tailproof as tp
from tailproof.core.deferred import Deferred
from tailproof.estimators.robust_regressor import on_demand

ASKED = ("coefficient_errors_", "held_out_errors_", "row_weights_")


def rows(n=600, d=3):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, d))
    return X, X.sum(axis=1) + rng.lognormal(0, 1.5, n)


def told(model):
    report, X = model.report_, np.zeros((2, model.n_features_in_))
    return [
        model.summary().frame.to_numpy(dtype=float),
        model.predict_interval(X),
        model.predict_interval(X, scaled=True),
        model.row_weights_,
        *(report.risk, report.difference, report.low, report.high),
        *(report.leading_rows, report.leading_weights, report.leading_shares),
    ]


def at_once(monkeypatch, X, y, **fit):
    with monkeypatch.context() as now:
        now.setattr(on_demand, "_KEPT", -1)
        model = tp.RobustRegressor(random_state=0).fit(X, y, **fit)
    return told(model)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_the_caller_changes_afterwards_change_nothing(monkeypatch, weighted):
    X, y = rows()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, y.size) if weighted else None
    wanted = at_once(monkeypatch, X, y, sample_weight=weights)
    model = tp.RobustRegressor(random_state=0).fit(X, y, sample_weight=weights)
    assert not set(ASKED) & set(vars(model))
    for given in (X, y, *([weights] if weighted else [])):
        given[...] = 7.0
    for found, expected in zip(told(model), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_have_everything_and_no_rows(copied):
    X, y = rows()
    again = copied(tp.RobustRegressor(random_state=0).fit(X, y))
    assert set(ASKED) <= set(vars(again))
    assert "_later" not in vars(again)
    assert "_later" not in vars(again.report_)
    for found, expected in zip(told(again), told(tp.RobustRegressor(random_state=0).fit(X, y)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_saved_before_it_is_asked(tmp_path):
    X, y = rows()
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    tp.save(model, tmp_path / "model")
    again = tp.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X[:3]), model.predict_interval(X[:3]))
    np.testing.assert_array_equal(again.report_.low, model.report_.low)
    assert str(again.summary()) == str(model.summary())


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
def test_no_row_of_the_caller_is_kept_alive(loss):
    class Rows(np.ndarray):
        """An array that can be watched."""

    X, y = rows()
    watched = [X.view(Rows), np.abs(y).view(Rows)]
    gone = [weakref.ref(array) for array in watched]
    model = tp.RobustRegressor(loss, random_state=0).fit(*watched)
    del watched
    gc.collect()
    assert [array() for array in gone] == [None, None]
    assert model.row_weights_.shape == y.shape


def test_a_second_fit_forgets_what_the_first_one_left_to_be_made():
    X, y = rows()
    model = tp.RobustRegressor(random_state=0).fit(X, y)
    model.fit(X[:12], y[:12])
    assert not hasattr(model, "held_out_errors_")
    assert model.row_weights_.shape == (12,)


def test_what_was_set_is_not_made_again():
    record = Deferred()
    record._defer(dict.fromkeys("ab", lambda: {"a": 1, "b": 2}))
    record.a = 5
    assert (record.b, record.a) == (2, 5)
    with pytest.raises(AttributeError, match="no attribute 'c'"):
        _ = record.c


def test_what_is_made_later_can_be_changed_before():
    made = []

    def make():
        made.append(1)
        return {"a": 2, "b": 3}

    record = Deferred()
    record._defer({"a": make})
    record._amend("a", lambda a: 10 * a)
    assert not made
    assert (record.a, record.b, len(made)) == (20, 3, 1)
    record._amend("a", lambda a: a + 1)
    record._amend("nothing", lambda a: a + 1)
    assert record.a == 21
    assert not hasattr(record, "nothing")
