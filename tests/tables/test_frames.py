"""Rows in any kind of container as a table, or one sentence."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tailproof.tables.columns import TableError
from tailproof.tables.frames import as_table

ROWS = [{"size": 1.5, "colour": "red"}, {"size": 2.5, "colour": "blue"}]


@pytest.mark.parametrize(
    "rows",
    [ROWS, pd.DataFrame(ROWS), pd.DataFrame(ROWS).to_dict("list")],
    ids=["records", "frame", "columns"],
)
def test_containers(rows):
    assert as_table(rows).to_pylist() == ROWS


def test_intervals_are_text():
    frame = pd.DataFrame({"band": pd.cut([1.0, 5.0], [0, 2, 6])})
    assert as_table(frame).column("band").to_pylist() == ["(0, 2]", "(2, 6]"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("new.csv", r"'new.csv' is text: tailproof.predict\(model, path\) reads files"),
        (pd.Series([1, 2]), r"got Series of shape \(2,\)"),
        (sparse.eye_array(3, format="csr"), "got csr_array of shape"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "X has two columns named 'a': rename one of them"),
        (pd.DataFrame({"a": [1j]}), "column a .*: make its values all numbers, or all text"),
        (pd.DataFrame({"a": [1, "b"]}), "column a .*: make its values all numbers, or all text"),
        (np.zeros(3), r"got ndarray of shape \(3,\)"),
    ],
)
def test_one_sentence(rows, words):
    with pytest.raises(TableError, match=words):
        as_table(rows)
