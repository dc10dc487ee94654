"""Numbers of new rows that are far from those a model learned from are remarked on."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import tailproof as tp
from tailproof.model_files.files import checksum
from tailproof.tables.model import fit_table, prepare
from tailproof.tables.pieces import predict_in_pieces
from tailproof.tables.sizes import FAR, sizes_of, times_as_large

_RNG = np.random.default_rng(0)
_INSURED = np.round(_RNG.lognormal(7, 0.6, 300))
_AGE = _RNG.integers(18, 90, 300).astype(float)
_COST = 0.3 * _INSURED + 5 * _AGE + _RNG.standard_normal(300)
_SETTINGS = {"random_state": 0}


def _table(factor=1.0):
    return pa.table({"insured": factor * _INSURED, "age": _AGE})


def _model():
    rows = prepare(_table().append_column("cost", pa.array(_COST)), "cost")
    return fit_table(rows, "auto", _SETTINGS)


@pytest.mark.parametrize(("factor", "words"), [(1e-3, "1,000 times smaller"), (100.0, "100 times larger")])
def test_a_model_remarks_on_a_column_in_another_unit_and_on_no_other(factor, words):
    with pytest.warns(UserWarning, match="times") as seen:
        _model().predict(_table(factor))
    (text,) = [str(item.message) for item in seen]
    assert "'insured'" in text
    assert words in text


@pytest.mark.parametrize("rows", [slice(None), slice(0, 1), slice(0, 5)])
def test_rows_like_those_learned_from_are_not_remarked_on(rows):
    new = _table().to_pandas()[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _model().predict(new)


def test_a_table_regressor_remarks_on_it_too():
    frame = _table().to_pandas()
    model = tp.TableRegressor().fit(frame, _COST)
    with pytest.warns(UserWarning, match="'insured' are about .* times smaller"):
        model.predict(frame.assign(insured=frame["insured"] / 1000)[:1])


def test_pieces_are_judged_together(tmp_path, monkeypatch):
    """A piece alone may be far off, as in a sorted file; all of them say what is typical."""
    monkeypatch.setattr("tailproof.tables.pieces.PIECE", 100)
    low = np.r_[np.full(100, 1.0), _INSURED[100:]]
    pq.write_table(pa.table({"insured": low, "age": _AGE}), tmp_path / "sorted.parquet")
    pq.write_table(_table(1e-3), tmp_path / "small.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict_in_pieces(_model(), [tmp_path / "sorted.parquet"], tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="times smaller") as seen:
        predict_in_pieces(_model(), [tmp_path / "small.parquet"], tmp_path / "b.parquet")
    assert len(seen) == 1


def test_a_few_numbers_count_only_beyond_what_was_learned():
    learned = sizes_of(np.random.default_rng(1).lognormal(0, 3, 1000))
    inside, beyond = np.array([0.9 * learned[2]]), np.array([2 * learned[2]])
    assert inside[0] > FAR * learned[1]
    assert times_as_large(inside, learned) == 1
    assert times_as_large(beyond, learned) > FAR
    assert times_as_large(np.repeat(inside, 20), learned) > FAR


def test_a_saved_model_remembers(tmp_path):
    tp.save(_model(), tmp_path / "c.model")
    with pytest.warns(UserWarning, match="times smaller"):
        tp.load(tmp_path / "c.model").predict(_table(1e-3))


# What columns and dialects have been given since models were first written.
_SINCE = {"sizes", "guessed", "asked", "usual", "units"}


def _without_news(value):
    if isinstance(value, dict):
        return {name: _without_news(part) for name, part in value.items() if name not in _SINCE}
    return [_without_news(part) for part in value] if isinstance(value, list) else value


def test_older_model_files_know_no_sizes_and_predict_all_the_same(tmp_path):
    path, model = tmp_path / "c.model", _model()
    tp.save(model, path)
    with safe_open(path, "np") as file:
        record = json.loads(file.metadata()["tailproof"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dictionary
    assert _without_news(record) != record
    header = json.dumps(_without_news(record), ensure_ascii=False)
    save_file(tensors, path, {"tailproof": header, "sha256": checksum(header, tensors)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tp.load(path).predict(_table(1e-3))
    with pytest.warns(UserWarning, match="times smaller"):
        np.testing.assert_array_equal(found["prediction"], model.predict(_table(1e-3))["prediction"])


def test_missing_numbers_and_zeros_say_nothing():
    new = pa.table({"insured": pa.array([None, 0.0] * 50), "age": _AGE[:100]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _model().predict(new)
