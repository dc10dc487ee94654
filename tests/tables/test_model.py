import numpy as np
import pyarrow as pa
import pytest

import tailproof as tp
from tailproof.tables.columns import TableError
from tailproof.tables.model import CLI_METHODS, OptionError, fit_table, make_estimator, prepare

rng = np.random.default_rng(0)
N = 300
TABLE = pa.table(
    {
        "x": rng.standard_normal(N),
        "c": np.array(["a", "b"])[rng.integers(0, 2, N)],
        "y": pa.array(rng.standard_normal(N), mask=np.arange(N) % 10 == 0),
        "count": rng.integers(0, 3, N),
        "flag": rng.integers(0, 2, N).astype(bool),
        "text": np.array(["u", "v", "w"])[rng.integers(0, 3, N)],
    }
)


@pytest.mark.parametrize(
    ("target", "task"),
    [
        ("y", "regression"),
        ("count", "classification"),
        ("flag", "classification"),
        ("text", "classification"),
    ],
)
def test_the_task_follows_from_the_target(target, task):
    rows = prepare(TABLE, target)
    assert rows.task == task
    assert target in rows.why
    assert target not in rows.encoding.names


def test_the_task_can_be_asked_for():
    assert prepare(TABLE, "count", "regression").task == "regression"
    assert prepare(TABLE, "count", "regression").y.dtype == np.float64


def test_rows_without_a_target_are_left_out():
    rows = prepare(TABLE, "y")
    assert rows.rows.tolist() == [j for j in range(N) if j % 10]
    assert rows.without_target == N // 10
    assert np.array_equal(rows.X[:, 0], TABLE.column("x").to_numpy()[rows.rows])


@pytest.mark.parametrize("method", CLI_METHODS)
@pytest.mark.parametrize("target", ["y", "text"])
def test_every_method_survives_a_file(tmp_path, method, target):
    model = fit_table(prepare(TABLE, target), method, {"random_state": 0, "delta": 0.1}, {"rows": N})
    tp.save(model, tmp_path / "m")
    again = tp.load(tmp_path / "m")
    assert again.encoding == model.encoding
    assert (again.target, again.task, again.made) == (target, model.task, {"rows": N})
    first, second = model.predict(TABLE), again.predict(TABLE)
    assert first.keys() == second.keys()
    for name, values in first.items():
        assert np.array_equal(values, second[name])
    assert np.isclose(
        sum(v for k, v in first.items() if k.startswith("share")), float(target == "text")
    ).all()


def test_settings_that_do_not_fit():
    assert make_estimator("regression", "rv", {"k": 3, "loss": None}).k == 3
    for settings, words in [
        ({"k": 3}, "does not go with"),
        ({"delta": 2.0}, "delta"),
        ({"loss": "hinge"}, "loss"),
    ]:
        with pytest.raises(OptionError, match=words):
            make_estimator("regression", "auto", settings)
    with pytest.raises(ValueError, match="method must be one of"):
        make_estimator("regression", "magic", {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "z"}, "no column 'z'"),
        ({"leave_out": ["q"]}, "no column 'q'"),
        ({"target": "text", "task": "regression"}, "a regression needs numbers"),
        ({"table": TABLE.slice(0, 5)}, "at least 10"),
        ({"table": TABLE.select(["y"])}, "nothing to learn it from"),
    ],
)
def test_tables_that_teach_nothing(change, message):
    with pytest.raises(TableError, match=message):
        prepare(**({"table": TABLE, "target": "y"} | change))


def test_a_target_of_half_precision_is_learned():
    cost = np.arange(40, dtype=np.float16) / 2
    cost[3] = np.nan
    rows = prepare(pa.table({"size": np.arange(40.0), "cost": pa.array(cost)}), "cost")
    assert rows.without_target == 1
    assert np.array_equal(rows.y, np.delete(cost, 3).astype(np.float64))


def test_a_target_of_dates_is_learned_in_days():
    days = pa.array(np.arange(40), pa.int32()).cast(pa.date32())
    rows = prepare(pa.table({"a": np.arange(40.0), "when": days}), "when")
    assert (rows.task, rows.y[:3].tolist()) == ("regression", [0.0, 1.0, 2.0])
    assert rows.why.startswith("'when' is a date, counted in days")


def test_text_in_a_column_of_weights_is_named():
    table = pa.table({"x": np.arange(30.0), "y": np.arange(30.0) ** 2, "w": ["light", "heavy"] * 15})
    with pytest.raises(TableError, match="column 'w' holds text such as 'light', where numbers are needed"):
        prepare(table, "y", weight="w")


def test_blanks_around_classes_do_not_count():
    table = pa.table({"x": np.arange(30.0), "y": ["yes", "no ", " yes", "no"] * 7 + ["yes", "no"]})
    assert set(prepare(table, "y").y.tolist()) == {"yes", "no"}
