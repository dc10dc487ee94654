import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailproof.tables.columns import coded

texts = st.lists(st.one_of(st.none(), st.sampled_from(["red", "blue", "ä", ""])), max_size=12)


def decoded(found):
    return [None if code is None else found.categories[code].as_py() for code in found.codes.to_pylist()]


@settings(max_examples=60)
@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from([0, 1, 2]))
def test_codes_say_what_the_texts_say(parts, how):
    plain = pa.chunked_array([pa.array(part, pa.string()) for part in parts])
    # Dictionaries of each chunk alone, as a CSV has them, or of all together.
    apart = pa.chunked_array([chunk.dictionary_encode() for chunk in plain.chunks])
    found = coded([plain, apart, plain.dictionary_encode()][how])
    every = [text for part in parts for text in part]
    assert decoded(found) == every
    assert found.missing == every.count(None)
    levels, counts = found.occurring()
    assert dict(zip(levels.to_pylist(), counts.tolist(), strict=True)) == {
        text: every.count(text) for text in {*every} - {None}
    }
    places = found.translated(["blue", "red"], unknown=5, missing=6).to_pylist()
    assert places == [{None: 6, "blue": 0, "red": 1}.get(text, 5) for text in every]


@pytest.mark.parametrize(
    ("dictionary", "texts"),
    [
        (["a", "a", "b"], ["a", "a", "b", None]),  # a level twice
        (["a", None, "b"], ["a", None, "b", None]),  # a level that is missing
        ([7, 8, 9], ["7", "8", "9", None]),
    ],
)
def test_a_dictionary_may_be_anything(dictionary, texts):
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int8()), pa.array(dictionary))
    found = coded(pa.chunked_array([odd]))
    assert decoded(found) == texts
    assert len(set(found.categories.to_pylist())) == len(found.categories)
    assert np.all(found.occurring()[1] <= 2)


def test_blanks_around_categories_do_not_count():
    column = coded(pa.chunked_array([["red ", "red"], ["\u00a0blue", "blue"]]))
    assert column.categories.to_pylist() == ["red", "blue"]
    assert column.codes.to_pylist() == [0, 0, 1, 1]
