"""Measures of predictions against slow, obvious ones, and what they say of known models."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.metrics import confusion_matrix, roc_auc_score

from tailproof.tables.effects import partial_effects
from tailproof.tables.measures import (
    calibration,
    class_scores,
    confusion,
    deviance,
    driving_rows,
    gini,
    lift,
    regression_scores,
)
from tailproof.tables.model import fit_table, make_estimator, prepare
from tailproof.tables.quality import _SENTENCES, _split, drivers_of, left_out_of, measured

rng = np.random.default_rng(0)
N = 400
SIZE, AGE = rng.standard_normal(N), rng.uniform(20, 80, N)
HUE = np.array(["red", "blue", "green"])[rng.integers(0, 3, N)]
TABLE = pa.table(
    {
        "size": SIZE,
        "age": AGE,
        "hue": HUE,
        "cost": 5 + 3 * SIZE + 4 * (HUE == "red") + 0.1 * rng.standard_normal(N),
        "count": rng.poisson(np.exp(0.5 * SIZE)),
        "label": np.where(SIZE + 0.5 * rng.standard_normal(N) > 0, "yes", "no"),
    }
)


def rows_for(target, task="auto"):
    return prepare(TABLE, target, task, [name for name in ("cost", "count", "label") if name != target])


values = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 5)), min_size=3, max_size=30)


@settings(max_examples=30)
@given(values)
def test_gini_is_the_share_of_pairs_in_order(pairs):
    """Of all pairs of rows, by how much the one with the higher prediction has more, over the mean."""
    y, predicted = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    y += 0.01
    ordered = np.sign(predicted[:, None] - predicted) * (y[:, None] - y)
    np.testing.assert_allclose(gini(y, predicted), ordered.sum() / (2 * y.sum() * len(y)), atol=1e-9)


def test_weights_are_repetitions():
    y, predicted, times = rng.exponential(size=40), rng.standard_normal(40), rng.integers(1, 4, 40)
    many = np.repeat(y, times), np.repeat(predicted, times)
    for measure in (gini, lift):
        np.testing.assert_allclose(measure(y, predicted, times.astype(float)), measure(*many), rtol=0.2)
    weighted, repeated = regression_scores(y, predicted, times.astype(float)), regression_scores(*many)
    for name in ("r2", "rmse", "mae", "gini"):
        np.testing.assert_allclose(weighted[name], repeated[name])


def test_predictions_that_are_all_equal_have_no_order():
    y = rng.exponential(size=100)
    assert lift(y, np.ones(100)) == pytest.approx(1)
    assert gini(y, np.ones(100)) == pytest.approx(0)


def test_deviance_is_that_of_the_definition():
    y, mean = rng.poisson(2.0, 50).astype(float), rng.uniform(1, 3, 50)
    logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / mean), 0)
    np.testing.assert_allclose(deviance(y, mean, 1.0), np.mean(2 * (logs - y + mean)))
    assert np.isfinite(deviance(y, np.zeros(50), 1.0))


def test_classes():
    y, classes = np.array(["a", "b"])[rng.integers(0, 2, 60)], np.array(["a", "b"])
    share = rng.random(60)
    shares = np.column_stack([1 - share, share])
    predicted = classes[(share > 0.5).astype(int)]
    found = class_scores(y, classes, predicted, shares)
    assert found["auc"] == pytest.approx(roc_auc_score(y == "b", share))
    assert found["accuracy"] == np.mean(y == predicted)
    np.testing.assert_array_equal(confusion(y, predicted, classes).counts, confusion_matrix(y, predicted))


def test_only_the_largest_of_many_classes_are_shown():
    y = np.repeat(np.arange(30), np.arange(30) + 1)
    found = confusion(y, y, np.arange(30))
    assert found.labels == [str(label) for label in range(18, 30)]
    assert found.counts[-1][-1] == 30


@pytest.mark.parametrize("n", [1, 9, 10, 57, 1000])
def test_groups_of_the_calibration(n):
    predicted = rng.standard_normal(n)
    groups = calibration(predicted + rng.standard_normal(n), predicted)
    assert len(groups) == (0 if n < 10 else min(10, n // 5))
    assert sum(group.rows for group in groups) == (n if groups else 0)
    assert all(group.low <= group.actual <= group.high for group in groups)
    assert np.all(np.diff([group.predicted for group in groups]) > 0)


def test_an_interval_of_shares_stays_between_zero_and_one():
    hits = (rng.random(300) < 0.97).astype(float)
    assert all(0 <= g.low <= g.high <= 1 for g in calibration(hits, rng.random(300)))


@settings(max_examples=30)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12))
def test_no_fewer_rows_have_half_of_the_squared_error(residuals):
    y = np.array(residuals)
    found, squares = driving_rows(y, np.zeros(len(y))), y**2
    if squares.sum() == 0:
        assert found.size == 0
        return
    assert squares[found].sum() >= squares.sum() / 2 * (1 - 1e-12)
    assert np.sort(squares)[::-1][: found.size - 1].sum() < squares.sum() / 2


def test_one_row_that_drives_the_result_is_named():
    rows = rows_for("cost")
    far = rows.y.copy()
    far[7] += 1e4
    rows = replace(rows, y=far)
    found = drivers_of(rows, LinearRegression().fit(rows.X, rows.y))
    assert found.rows.tolist() == [7]
    assert found.sentence() == "1 row of 400 drives the result: half of all squared error is its."


@pytest.mark.filterwarnings("ignore::tailproof.core.populations.TwoPopulationsWarning")
@pytest.mark.parametrize("method", ["auto", "dc"])
def test_rows_that_the_fit_leaves_out_do_not_measure_it_and_drive_nothing(method):
    rows = rows_for("cost")
    train, test = _split(rows, 0)
    errors = sorted([*train[:2].tolist(), *test[:2].tolist()])
    far = rows.y.copy()
    far[errors] = 1e7
    rows = replace(rows, y=far)
    estimator = make_estimator("regression", method, {"random_state": 0}).fit(rows.X, rows.y)
    left_out = left_out_of(estimator)
    assert left_out.tolist() == errors
    quality = measured(rows, estimator, 0, left_out)
    assert quality.values["r2"] > 0.9
    assert abs(quality.values["constant_r2"]) < 0.1
    assert quality.values["plain_r2"] < -9
    assert (quality.values["rows_held_out"], quality.values["rows_not_counted"]) == (98, 2)
    assert "2 of the unseen rows are not counted" in quality.sentences[-1]
    assert not set(drivers_of(rows, estimator, left_out).rows) & set(errors)
    assert set(drivers_of(rows, estimator).rows) & set(errors)


@pytest.mark.parametrize(
    ("target", "task", "settings", "names"),
    [
        ("cost", "auto", {}, {"r2", "rmse", "mae", "plain_r2", "constant_r2", "rows_held_out"}),
        ("count", "regression", {"loss": "poisson"}, {"deviance", "deviance_explained", "gini", "lift"}),
        ("label", "auto", {}, {"accuracy", "auc", "log_loss", "plain_accuracy"}),
    ],
)
def test_what_is_measured(target, task, settings, names):
    rows = rows_for(target, task)
    quality = measured(rows, make_estimator(rows.task, "auto", settings | {"random_state": 0}), 0)
    assert names <= quality.values.keys()
    assert quality.calibration
    assert (quality.confusion is not None) == (target == "label")
    assert all(np.isfinite(value) for value in quality.values.values())
    assert quality.record().keys() > quality.values.keys()


def test_counts_are_measured_against_a_model_of_counts():
    rows = rows_for("count", "regression")
    quality = measured(rows, make_estimator(rows.task, "auto", {"loss": "poisson", "random_state": 0}), 0)
    assert "of the deviance" in quality.sentences[0]
    assert "a Poisson GLM" in quality.sentences[0]
    assert "Gini index" in quality.sentences[1]


def test_effects_are_those_that_the_rows_were_made_of():
    rows = rows_for("cost")
    size, hue, *rest = partial_effects(rows, fit_table(rows, "auto", {"random_state": 0}).estimator)
    assert [size.name, hue.name] == ["size", "hue"]
    slopes = np.diff(size.predicted) / np.diff(size.values)
    np.testing.assert_allclose(slopes, 3, atol=0.05)
    by_level = dict(zip(hue.values, hue.predicted, strict=True))
    assert by_level["red"] - by_level["blue"] == pytest.approx(4, abs=0.1)
    assert all(effect.strength < 0.1 for effect in rest)


def test_effects_of_missing_and_of_nearly_constant_numbers():
    mostly = np.zeros(N)
    mostly[:3] = 1.0
    table = pa.table(
        {"gaps": [None if j % 3 else float(j) for j in range(N)], "mostly": mostly, "y": 5.0 * mostly + SIZE}
    )
    rows = prepare(table, "y")
    effects = partial_effects(rows, fit_table(rows, "auto", {"random_state": 0}).estimator)
    assert {effect.name for effect in effects} <= {"gaps", "mostly"}
    assert all(np.isfinite(effect.predicted).all() for effect in effects)


def test_a_trifle_below_nothing_is_about_nothing():
    scores = {"r2": -0.2, "constant_r2": 0.0, "plain_r2": -0.0033, "median_error": 1.0, "mae": 2.0}
    (said,) = _SENTENCES["regression"](scores, "least squares", False)
    assert "worse than least squares (about 0%)" in said
