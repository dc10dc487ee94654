"""What NumPy would turn into numbers of another meaning is refused: masked values and times."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import tailproof as tp

REGRESSORS = [
    tp.RobustRegressor(random_state=0),
    tp.DCSGDRegressor(random_state=0),
    tp.RGDRegressor(random_state=0),
    tp.DivideAndConquer(LinearRegression(), random_state=0),
    tp.RobustValidation(LinearRegression(), random_state=0),
]
CLASSIFIERS = [tp.DCSGDClassifier(random_state=0), tp.DivideAndConquer(LogisticRegression(), random_state=0)]
N = 60
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 2))
Y = X.sum(axis=1)
HALF = np.arange(N) < N // 2
TIMES = pd.Series(pd.date_range("2024-01-01", periods=N))


def name(model):
    return type(model).__name__


@pytest.mark.parametrize("model", REGRESSORS, ids=name)
def test_masked_targets_and_times_are_no_targets(model):
    with pytest.raises(ValueError, match="y has masked values"):
        model.fit(X, np.ma.masked_array(np.where(HALF, 1e9, Y), mask=HALF))
    for times in (TIMES, TIMES.to_numpy(), TIMES - TIMES[0], TIMES.dt.tz_localize("UTC")):
        with pytest.raises(ValueError, match="y holds times: make numbers of them"):
            model.fit(X, times)


@pytest.mark.parametrize("model", REGRESSORS + CLASSIFIERS, ids=name)
def test_masked_rows_are_refused_and_a_mask_of_nothing_is_none(model):
    y = Y > 0 if model in CLASSIFIERS else Y
    with pytest.raises(ValueError, match="X has masked values"):
        model.fit(np.ma.masked_array(X, mask=X > 1), y)
    model.fit(np.ma.masked_array(X, mask=False), y)


def test_columns_of_times_name_the_class_that_takes_them():
    for given in (pd.DataFrame({"a": X[:, 0], "when": TIMES}), TIMES.to_numpy()[:, None]):
        with pytest.raises(ValueError, match=r"X holds times.*tailproof\.TableRegressor"):
            tp.DCSGDRegressor().fit(given, Y)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize("kind", ["M8[ms]", "m8[ms]", "M8[D]"])
@pytest.mark.parametrize("model", REGRESSORS, ids=name)
def test_times_in_other_tables_than_those_of_pandas(model, library, kind):
    make = pytest.importorskip("polars").DataFrame if library == "polars" else pa.table
    table = make({"a": X[:, 0], "when": np.arange(N).astype(kind)})
    with pytest.raises(ValueError, match="y holds times"):
        model.fit(X, table["when"])
    with pytest.raises(ValueError, match="X holds times"):
        model.fit(table, Y)


@pytest.mark.parametrize("library", ["polars", "pyarrow", "pandas"])
@pytest.mark.parametrize("kind", [tp.DivideAndConquer, tp.RobustValidation])
def test_estimators_that_pick_columns_get_times_too(kind, library):
    make = {"polars": pytest.importorskip("polars").DataFrame, "pyarrow": pa.table, "pandas": pd.DataFrame}
    table = make[library]({"a": X[:, 0], "when": np.arange(N).astype("M8[ms]")})
    hours = FunctionTransformer(_with_hours)
    found = kind(make_pipeline(hours, LinearRegression()), random_state=0).fit(table, Y).predict(table)
    expected = kind(LinearRegression(), random_state=0).fit(_with_hours(table), Y)
    np.testing.assert_allclose(found, expected.predict(_with_hours(table)))
    for method in (expected.predict, lambda rows: expected.score(rows, Y)):
        with pytest.raises(ValueError, match="X holds times"):
            method(table)


def _with_hours(table):
    when = np.asarray(table["when"]).astype("M8[ms]").astype(np.int64)
    return np.column_stack([np.asarray(table["a"]), when / 3.6e6])


@pytest.mark.parametrize("kind", [tp.DivideAndConquer, tp.RobustValidation])
def test_a_pipeline_of_numbers_takes_no_times(kind):
    table = pytest.importorskip("polars").DataFrame({"a": X[:, 0], "when": np.arange(N).astype("M8[ms]")})
    with pytest.raises(ValueError, match="X holds times"):
        kind(make_pipeline(StandardScaler(), LinearRegression())).fit(table, Y)


def test_new_rows_and_weights_are_not_masked_either():
    model = tp.DCSGDRegressor(random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="X has masked values"):
        model.predict(np.ma.masked_array(X, mask=X > 1))
    with pytest.raises(ValueError, match="sample_weight has masked values"):
        model.fit(X, Y, np.ma.masked_array(np.ones(N), mask=HALF))


def test_comparisons_and_diagnoses_say_the_same():
    with pytest.raises(ValueError, match="a has masked values"):
        tp.model_selection.compare_means(np.ma.masked_array(Y, mask=HALF), Y)
    with pytest.raises(ValueError, match="b holds times"):
        tp.model_selection.compare_means(Y, TIMES)
    with pytest.raises(ValueError, match="y holds times"):
        tp.diagnose.diagnose(X, TIMES)


def test_numbers_of_pandas_that_know_missing_values_are_numbers():
    frame = pd.DataFrame(X, columns=["a", "b"])
    plain, nullable = (
        tp.DivideAndConquer(LinearRegression(), random_state=0).fit(given, Y).predict(frame)
        for given in (frame, frame.astype("Float64"))
    )
    np.testing.assert_allclose(nullable, plain)


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: tp.fit(tp.DCSGDRegressor(), [(rows, Y)]),
        lambda rows: tp.fit(tp.DCSGDRegressor(), iter([(X, Y), (X, rows[:, 0])])),
        lambda rows: tp.model_selection.compare({"a": LinearRegression(), "b": LinearRegression()}, rows, Y),
        lambda rows: tp.diagnose.tails(rows[:, 0]),
    ],
)
def test_masked_values_are_refused_wherever_rows_go(call):
    with pytest.raises(ValueError, match="masked values"):
        call(np.ma.masked_array(X, mask=X > 0))


@pytest.mark.parametrize("model", [tp.RobustRegressor(), tp.DCSGDRegressor(), tp.RGDRegressor()], ids=repr)
@pytest.mark.parametrize("as_given", [np.array, list, lambda words: np.array(words, dtype=object)])
def test_words_are_no_targets_of_a_regression(model, as_given):
    X = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(ValueError, match=r"^y must be numbers, not words such as 'a': labels are for class"):
        model.fit(X, as_given(["1", "a"] * 20))


def test_numbers_written_as_texts_are_targets_and_weights_as_in_scikit_learn():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 2)), rng.standard_normal(60)
    texts = tp.RobustRegressor(random_state=0).fit(X, y.astype(str), sample_weight=np.full(60, "1"))
    numbers = tp.RobustRegressor(random_state=0).fit(X, y, sample_weight=np.ones(60))
    assert np.array_equal(texts.coef_, numbers.coef_)
    assert np.allclose(LinearRegression().fit(X, y.astype(str)).coef_, LinearRegression().fit(X, y).coef_)
