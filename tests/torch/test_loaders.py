"""A DataLoader as a source of rows for linear estimators."""

import tempfile

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tailproof as tp
from pieces_data import assert_same, rows

SETTINGS = {"k": 3, "random_state": 7, "max_iter": 2}


def fit(data, **options):
    return tp.fit(tp.DCSGDRegressor(**SETTINGS), data, **options)


def test_batches_of_a_loader_are_read_as_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X, y = rows(600)
    weights = np.random.default_rng(0).uniform(size=600)
    tensors = [torch.from_numpy(values) for values in (X, y[:, None], weights)]
    model = fit(DataLoader(TensorDataset(*tensors[:2]), batch_size=50))
    assert_same(model, fit([(X, y)], shuffle=True))
    weighted = fit(DataLoader(TensorDataset(*tensors), batch_size=50), sample_weight="given")
    assert_same(weighted, fit([(X, y, weights)], sample_weight="given", shuffle=True))
    expected = X @ model.coef_ + model.intercept_
    for given in (tensors[:1], tensors[:2]):
        loader = DataLoader(TensorDataset(*given), batch_size=50)
        np.testing.assert_allclose(tp.predict(model, loader), expected, rtol=1e-9)
    assert tp.score(model, DataLoader(TensorDataset(*tensors[:2]), batch_size=50)) > 0.5
    assert not list(tmp_path.iterdir())


def test_batches_of_dicts_have_named_columns():
    X, y = rows(600)
    items = [{"a": X[i, 0], "b": X[i, 1], "y": y[i]} for i in range(600)]
    model = fit(DataLoader(items, batch_size=50))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert_same(model, fit([(X[:, :2].copy(), y)], shuffle=True))


def test_images_are_refused():
    loader = DataLoader(TensorDataset(torch.ones(20, 3, 3), torch.ones(20)), batch_size=5)
    with pytest.raises(ValueError, match="X of a chunk must have rows and columns"):
        fit(loader)
