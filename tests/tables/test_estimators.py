"""Estimators for data frames with text, dates and missing values."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

import tailproof as tp
from tailproof.tables.columns import TableError
from tailproof.tables.model import fit_table, prepare

rng = np.random.default_rng(0)
N = 240
FRAME = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 9 == 0, np.nan, rng.standard_normal(N)),
        "colour": rng.choice(["red", "blue", "green"], N),
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, N), unit="D"),
        "price": [f"${value:,.2f}" for value in rng.uniform(1_000, 9_000, N)],
        "zip": [f"{value:05d}" for value in rng.integers(0, 20, N)],
    }
)
PRICE = FRAME["price"].str.replace("[$,]", "", regex=True).astype(float)
Y = (
    3 * FRAME["size"].fillna(0)
    + 2.0 * (FRAME["colour"] == "red")
    + PRICE / 1_000
    + 0.1 * rng.standard_normal(N)
)
LABELS = np.where(Y.median() < Y, "high", "low")
LINEAR = tp.TableRegressor(Ridge(1e-6))


def test_everything_in_a_frame_is_learned_from():
    model = clone(LINEAR).fit(FRAME, Y)
    assert model.score(FRAME, Y) > 0.98
    kinds = {column.name: column.kind for column in model.encoding_.columns}
    assert kinds == {
        "size": "number",
        "colour": "category",
        "when": "date",
        "price": "number",
        "zip": "category",
    }
    new = FRAME.iloc[:5][["zip", "price", "when", "colour", "size"]].assign(colour="violet", more=1)
    with pytest.warns(UserWarning, match="'colour': 5 never seen by the model, counted as 'red'"):
        assert np.isfinite(model.predict(new)).all()


@pytest.mark.parametrize(
    "make", [pl.from_pandas, lambda frame: pa.Table.from_pandas(frame, preserve_index=False)]
)
def test_frames_of_every_kind_are_the_same(make):
    expected = clone(LINEAR).fit(FRAME, Y).predict(FRAME)
    np.testing.assert_allclose(clone(LINEAR).fit(make(FRAME), Y).predict(make(FRAME)), expected, rtol=1e-9)


def test_arrays_are_tables_too():
    X = rng.standard_normal((60, 3))
    model = tp.TableRegressor(Ridge(1e-9)).fit(X, X.sum(axis=1))
    np.testing.assert_allclose(model.predict(X), X.sum(axis=1), atol=1e-6)
    with pytest.raises(ValueError, match="two-dimensional"):
        tp.TableRegressor().fit(X[:, 0], X[:, 0])


def test_they_are_estimators_of_scikit_learn():
    assert is_regressor(tp.TableRegressor())
    assert is_classifier(tp.TableClassifier())
    assert cross_val_score(LINEAR, FRAME, Y, cv=3).min() > 0.95
    model = tp.TableClassifier(tp.DCSGDClassifier(k=3, random_state=0))
    assert cross_val_score(model, FRAME, LABELS, cv=3).min() > 0.7
    model.fit(FRAME, LABELS, sample_weight=np.ones(N))
    assert model.classes_.tolist() == ["high", "low"]
    np.testing.assert_allclose(model.predict_proba(FRAME).sum(axis=1), 1)
    assert model.decision_function(FRAME).shape == (N,)
    assert model.feature_names_in_.tolist() == list(FRAME.columns)


@pytest.mark.parametrize("model", [LINEAR, tp.TableClassifier(tp.DCSGDClassifier(k=3, random_state=0))])
def test_files(model, tmp_path):
    fitted = clone(model).fit(FRAME, LABELS if is_classifier(model) else Y)
    tp.save(fitted, tmp_path / "m")
    again = tp.load(tmp_path / "m")
    assert np.array_equal(again.predict(FRAME), fitted.predict(FRAME))
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    assert np.array_equal(tp.predict(again, tmp_path / "t.csv"), fitted.predict(FRAME))
    assert np.array_equal(tp.predict(again, FRAME), fitted.predict(FRAME))


def test_models_of_the_command_line_take_frames_and_files(tmp_path):
    table = pa.Table.from_pandas(FRAME.drop(columns="price").assign(y=Y), preserve_index=False)
    model = fit_table(prepare(table, "y"), "dc", {"random_state": 0, "k": 3})
    expected = model.predict(table)["prediction"]
    assert np.array_equal(model.predict(FRAME)["prediction"], expected)
    assert np.array_equal(tp.predict(model, FRAME), expected)
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    assert np.array_equal(tp.predict(model, tmp_path / "t.csv"), expected)


def test_what_is_missing_is_named():
    model = clone(LINEAR).fit(FRAME, Y)
    with pytest.raises(TableError, match="no column 'colour', which the model needs"):
        model.predict(FRAME.drop(columns="colour"))


@pytest.mark.parametrize("estimator", [tp.RobustRegressor(), tp.DCSGDRegressor(), tp.RGDRegressor()])
def test_other_estimators_say_which_class_takes_text(estimator):
    with pytest.raises(
        ValueError, match=r"could not convert string .*: tailproof\.TableRegressor takes such columns"
    ):
        estimator.fit(FRAME[["size", "colour"]].fillna(0), Y)


def test_a_target_may_be_a_frame_of_one_column():
    texts = pd.Series([f"${value:,.2f}" for value in Y], name="paid")
    expected = clone(LINEAR).fit(FRAME, texts).predict(FRAME)
    np.testing.assert_array_equal(clone(LINEAR).fit(FRAME, texts.to_frame()).predict(FRAME), expected)
    model = tp.TableClassifier(tp.DCSGDClassifier(k=3, random_state=0)).fit(FRAME, LABELS)
    again = clone(model).fit(FRAME, pd.DataFrame({"label": LABELS}))
    assert np.array_equal(again.predict(FRAME), model.predict(FRAME))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, "NA"])
@pytest.mark.parametrize("shape", [pd.Series, pd.DataFrame])
def test_a_target_without_a_value_is_refused(missing, shape):
    texts = [f"${value:,.2f}" for value in Y]
    texts[3] = missing
    with pytest.raises(TableError, match=r"^the target has no value in 1 row: leave out"):
        tp.TableRegressor().fit(FRAME, shape(texts, dtype=object))


@pytest.mark.parametrize("model", [tp.TableRegressor(), tp.TableClassifier()])
def test_tables_without_columns_or_rows_are_refused(model):
    with pytest.raises(TableError, match=r"^X has no columns: there is nothing to learn from"):
        model.fit(FRAME[[]], Y)
    with pytest.raises(TableError, match=r"^X has no rows: there is nothing to learn from"):
        model.fit(FRAME.head(0), Y.head(0))


def test_intervals_of_a_frame():
    model = tp.TableRegressor().fit(FRAME[["size", "colour"]], Y)
    assert model.summary().names == tuple(model.encoding_.names)
    low, high = model.predict_interval(FRAME[["size", "colour"]], 0.8).T
    assert abs(np.mean((low <= Y) & (high >= Y)) - 0.8) < 0.1


def test_numbers_whose_leading_zeros_a_frame_has_lost_are_numbers_in_files(tmp_path):
    codes = np.arange(40)
    frame = pd.DataFrame({"code": codes, "size": np.cos(codes)})
    model = tp.TableRegressor(tp.DCSGDRegressor(random_state=0)).fit(frame, codes + frame["size"])
    lines = [f"{code:04d},{size!r}" for code, size in frame.itertuples(index=False)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["code,size", *lines]))
    np.testing.assert_array_equal(tp.predict(model, path), model.predict(frame))
    path.write_text("\n".join(["code,size", *lines, "x1,2"]))
    with pytest.raises(ValueError, match="'code' holds a category here; the model learned a number"):
        tp.predict(model, path)


def test_categories_that_a_model_does_not_know_are_said():
    model = clone(LINEAR).fit(FRAME, Y)
    with pytest.warns(UserWarning, match="'colour': 1 never seen by the model, counted as") as caught:
        model.predict(FRAME.head(3).assign(colour=["red", "Red", "blue"]))
    assert caught[0].filename == __file__


def test_a_column_of_numbers_and_text_is_one_sentence():
    mixed = FRAME.assign(colour=[1 if i % 2 else "red" for i in range(N)])
    with pytest.raises(TableError, match=r"column colour .* make its values all numbers, or all text"):
        clone(LINEAR).fit(mixed, Y)


@pytest.mark.parametrize("method", ["predict", "predict_interval", "predict_files"])
def test_what_is_not_fitted_says_so(method):
    with pytest.raises(NotFittedError):
        getattr(tp.TableRegressor(), method)(FRAME)
    with pytest.raises(NotFittedError):
        tp.TableClassifier().predict_proba(FRAME)


def test_a_target_of_text_is_numbers_or_an_error():
    rows, y = pd.DataFrame({"size": np.arange(60.0)}), 1000.0 + np.arange(60) / 4
    plain = tp.TableRegressor().fit(rows, y)
    money = tp.TableRegressor().fit(rows, [f"${value:,.2f}" for value in y])
    np.testing.assert_array_equal(money.predict(rows), plain.predict(rows))
    for words in (["north", "south"] * 30, ["2020-01-02", "2020-01-03"] * 30):
        with pytest.raises(ValueError, match=f"text such as '{words[0]}', and a regression needs numbers"):
            tp.TableRegressor().fit(rows, words)
