import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailproof.tables import encoding
from tailproof.tables.columns import TableError, column_type, is_classes, target_numbers
from tailproof.tables.encoding import MISSING, MOST_LEVELS, OTHER, learn_encoding

numbers = st.one_of(st.none(), st.floats(-1e12, 1e12))
colours = st.one_of(st.none(), st.sampled_from(["red", "blue", "<b>", "ä"]))


@given(st.lists(st.tuples(numbers, colours), min_size=30, max_size=60))
def test_a_matrix_is_finite_and_says_what_the_table_says(rows):
    sizes, shades = zip(*rows, strict=True)
    size = pa.array([*sizes, 1.5], pa.float64())
    table = pa.table({"size": size, "shade": pa.array([*shades, "red"]), "n": range(len(rows) + 1)})
    encoding = learn_encoding(table)
    X = encoding.matrix(table)
    assert X.shape == (len(rows) + 1, len(encoding.names))
    assert np.isfinite(X).all()
    known = [value for value in (*sizes, 1.5) if value is not None]
    for name, column in zip(encoding.names, X.T, strict=True):
        if name == "size":
            slow = [np.median(known) if value is None else value for value in (*sizes, 1.5)]
            assert np.array_equal(column, slow)
        if name == f"size {MISSING}":
            assert np.array_equal(column, [value is None for value in (*sizes, 1.5)])
        if name.startswith("shade=") and name != f"shade={OTHER}":
            level = name.removeprefix("shade=")
            assert np.array_equal(column, [(shade or MISSING) == level for shade in (*shades, "red")])


def levels_of(*counts):
    names = [f"level {j}" for j in range(len(counts))]
    return pa.table({"c": [name for name, count in zip(names, counts, strict=True) for _ in range(count)]})


class TestCategories:
    def test_rare_levels_are_pooled_and_the_most_frequent_is_the_reference(self):
        table = levels_of(100, 50, *[3] * 10)
        encoding = learn_encoding(table)
        assert encoding.names == ["c=level 1", f"c={OTHER}"]
        X = encoding.matrix(table)
        assert X[:100].sum() == 0
        assert X[100:150].tolist() == [[1, 0]] * 50
        assert X[150:].tolist() == [[0, 1]] * 30

    def test_new_levels_count_as_other(self):
        encoding = learn_encoding(levels_of(100, 50, *[3] * 10))
        assert encoding.matrix(pa.table({"c": ["new", None, "level 0"]})).tolist() == [[0, 1], [0, 1], [0, 0]]

    def test_new_levels_are_the_reference_where_nothing_was_pooled(self):
        encoding = learn_encoding(levels_of(100, 50))
        assert encoding.matrix(pa.table({"c": ["new", "level 1"]})).tolist() == [[0], [1]]

    def test_no_more_levels_than_fit(self):
        encoding = learn_encoding(levels_of(*[20] * 200))
        assert len(encoding.names) == MOST_LEVELS
        assert encoding.names[-1] == f"c={OTHER}"

    def test_missing_is_a_level(self):
        table = pa.table({"c": ["a"] * 40 + [None] * 20})
        assert learn_encoding(table).names == [f"c={MISSING}"]

    def test_dictionaries_are_texts(self):
        table = levels_of(100, 50)
        coded = pa.table({"c": table.column("c").dictionary_encode()})
        assert learn_encoding(coded) == learn_encoding(table)
        assert np.array_equal(learn_encoding(coded).matrix(coded), learn_encoding(table).matrix(table))

    def test_names_alone_say_nothing(self):
        table = pa.table({"name": [f"person {j}" for j in range(50)], "x": np.arange(50.0)})
        encoding = learn_encoding(table)
        assert encoding.names == ["x"]
        assert encoding.left_out == ("name",)


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (pa.array([dt.date(1970, 1, 2), dt.date(1970, 1, 4)]), [1, 3]),
        (pa.array([dt.datetime(1970, 1, 2, 12), dt.datetime(1970, 1, 4)]), [1.5, 3]),
        (pa.array([0, 10**9], pa.timestamp("ns", tz="UTC")), [0, 1 / 86_400]),
        (pa.array([dt.timedelta(days=2), dt.timedelta(0)]), [2, 0]),
        (pa.array([dt.time(12), dt.time(18)]), [0.5, 0.75]),
    ],
)
def test_dates_are_days(values, days):
    table = pa.table({"when": values})
    assert np.allclose(learn_encoding(table).matrix(table)[:, 0], days)


@pytest.mark.parametrize("values", [[True, False], [1, 2], ["1", " 2.5e3 "], [1.5, None]])
def test_numbers_of_every_kind(values):
    assert column_type("x", pa.chunked_array([values])) == "number"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        (["yes", "no"], True),
        ([True, False], True),
        ([0, 1, 2], True),
        (list(range(11)), False),
        ([0.0, 1.0], False),
        (["1.5", "2.5", "3"], False),
        ([0] * 40 + [1] * 12 + [2] * 3 + [3], False),  # claims in a year
        ([0] * 5 + [1, 2, 7, 30], False),
        ([1, 2, 3] * 4, True),
        (["01234", "56789", "00001"], True),
    ],
)
def test_what_is_a_class(values, answer):
    assert is_classes("y", pa.chunked_array([values])) is answer


class TestMistakes:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"x": [1.0, np.inf]}, "column 'x' is infinite in row 2"),
            ({"x": pa.array([None, None], pa.float64())}, "no column is left"),
            ({"x": pa.array([None, None], pa.string())}, "no column is left"),
            ({"x": [1.0, -2e150]}, r"column 'x' holds 2e\+150"),
            ({"x": ["1", "2", "oops", "4"]}, "column 'x' holds numbers, but row 3 says 'oops'"),
            ({"x": [[1], [2]]}, "column 'x' holds values of type list"),
            ({"x": [5, 5, 5]}, "no column is left"),
        ],
    )
    def test_learning(self, columns, message):
        with pytest.raises(TableError, match=message):
            learn_encoding(pa.table(columns))

    def test_two_columns_of_one_name(self):
        table = pa.Table.from_arrays([pa.array([1, 2])] * 2, names=["a", "a"])
        with pytest.raises(TableError, match="two columns named 'a'"):
            learn_encoding(table)

    def test_predicting(self):
        encoding = learn_encoding(pa.table({"x": [1.0, 2.0], "z": [3.0, 4.0]}))
        with pytest.raises(TableError, match="no column 'z', which the model needs"):
            encoding.matrix(pa.table({"x": [1.0]}))
        with pytest.raises(TableError, match="column 'x' holds a category here; the model learned a number"):
            encoding.matrix(pa.table({"x": ["low"], "z": [1.0]}))
        with pytest.raises(TableError, match="'z' is infinite in row 1"):
            encoding.matrix(pa.table({"x": [1.0], "z": [-np.inf]}))

    def test_targets(self):
        assert target_numbers("y", pa.chunked_array([[1, 2]])).tolist() == [1.0, 2.0]
        with pytest.raises(TableError, match="'y' is infinite in row 2"):
            target_numbers("y", pa.chunked_array([[1.0, np.inf]]))


def test_columns_in_any_order_and_more_of_them():
    table = pa.table({"x": [1.0, 2.0], "z": [3.0, 4.0]})
    encoding = learn_encoding(table)
    other = pa.table({"new": ["?"], "z": [3.0], "x": [1.0]})
    assert encoding.matrix(other).tolist() == [[1.0, 3.0]]


def test_a_column_without_a_value_takes_the_median():
    encoding = learn_encoding(pa.table({"x": [1.0, 2.0, 9.0], "z": [1.0, 2.0, 3.0]}))
    assert encoding.matrix(pa.table({"x": pa.nulls(1), "z": [1.0]})).tolist() == [[2.0, 1.0]]


class TestDatesInTexts:
    @pytest.mark.parametrize(
        ("texts", "days"),
        [
            (["1970-01-02", "1970-01-03"], [1.0, 2.0]),
            (["1970-01-02T12:00:00Z", "1970-01-01T06:00:00Z"], [1.5, 0.25]),
            (["1970-01-02 12:00", "1970-01-01 06:00:00.5"], [1.5, 0.25 + 0.5 / 86400]),
            (["1970-01-02T00:00:00+12:00", "1970-01-01T06:00:00Z"], [0.5, 0.25]),
        ],
    )
    def test_are_days(self, texts, days):
        for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
            table = pa.table({"when": pa.array([*texts * 10, None], pa.string()).cast(kind)})
            encoding = learn_encoding(table)
            assert encoding.columns[0].kind == "date"
            found = encoding.matrix(table)
            np.testing.assert_allclose(found[:2, 0], days, rtol=1e-12)
            assert found[-1].tolist() == [np.median(days * 10), 1.0]

    @pytest.mark.parametrize("slip", ["1970-02-30", "soon", "1970-01-02T12:00:00Z"])
    def test_with_one_that_is_none_are_texts(self, slip):
        table = pa.table({"when": ["1970-01-02", slip] * 20})
        assert learn_encoding(table).columns[0].kind == "category"

    def test_stay_dates_when_predicting(self):
        encoding = learn_encoding(pa.table({"when": ["1970-01-02", "1970-01-03"] * 10}))
        assert encoding.matrix(pa.table({"when": ["1970-01-11"]})).tolist() == [[10.0]]
        with pytest.raises(TableError, match=r"date \(the first value is 'tomorrow'\): --date-format"):
            encoding.matrix(pa.table({"when": ["tomorrow"]}))


class TestGaps:
    TABLE = pa.table({"size": [1.0, 2.0] * 60, "c": ["a"] * 60 + ["b"] * 40 + list("cdefghijkl") * 2})

    def test_are_counted_by_column(self):
        new = pa.table({"c": ["a", "q", "c", None], "size": [None, 1.0, np.nan, 2.0]})
        assert [str(gap) for gap in learn_encoding(self.TABLE).gaps(new)] == [
            "column 'size': 2 missing, filled with the median of the training rows",
            "column 'c': 1 missing and 1 never seen by the model, counted as '(other)'",
        ]

    def test_of_a_level_that_is_known_are_none(self):
        table = pa.table({"c": ["a"] * 20 + [None] * 30})
        assert learn_encoding(table).gaps(table) == []
        (gap,) = learn_encoding(table).gaps(pa.table({"c": ["z", None, "a"]}))
        assert str(gap) == "column 'c': 1 never seen by the model, counted as '(missing)'"

    def test_there_are_none_in_the_training_rows(self):
        assert learn_encoding(self.TABLE).gaps(self.TABLE) == []

    def test_where_too_many_levels_are_rare_to_remember_them(self, monkeypatch):
        monkeypatch.setattr(encoding, "_MOST_RARE", 9)
        (gap,) = learn_encoding(self.TABLE).gaps(self.TABLE)
        assert str(gap) == "column 'c': 20 rare or never seen by the model, counted as '(other)'"


def test_a_matrix_does_not_depend_on_how_the_table_is_cut(monkeypatch):
    monkeypatch.setattr(encoding, "_TILE", 7)
    rng = np.random.default_rng(0)
    whole = pa.table(
        {
            "x": pa.array(rng.standard_normal(100), mask=rng.random(100) < 0.2),
            "whole": rng.integers(0, 9, 100),
            "c": np.array(["a", "b", "c"])[rng.integers(0, 3, 100)],
        }
    )
    parts = pa.concat_tables([whole.slice(0, 33), whole.slice(33, 5), whole.slice(38)])
    cut = parts.set_column(0, "x", pa.chunked_array([whole.column("x").combine_chunks()]))
    assert learn_encoding(cut) == learn_encoding(whole)
    found = learn_encoding(whole)
    assert np.array_equal(found.matrix(cut), found.matrix(whole))
    slow = {name: np.ravel(found.matrix(whole)[:, j]) for j, name in enumerate(found.names)}
    assert np.array_equal(slow["whole"], whole.column("whole").to_numpy())
    assert np.array_equal(slow[f"x {MISSING}"], [value is None for value in whole.column("x").to_pylist()])


def test_the_row_of_an_infinite_value_is_counted_over_all_chunks():
    values = pa.chunked_array([[1.0, 2.0], [3.0, None, np.inf]])
    with pytest.raises(TableError, match="'x' is infinite in row 5"):
        learn_encoding(pa.table({"x": values}))
    with pytest.raises(TableError, match="'x' is infinite in row 5"):
        learn_encoding(pa.table({"x": [1.0, 2.0]})).matrix(pa.table({"x": values}))
