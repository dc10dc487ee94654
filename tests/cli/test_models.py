"""Models and engines by name: each fits."""

import numpy as np
import pyarrow as pa
import pytest

import tailproof as tp
from tailproof.cli import models
from tailproof.cli.models import ENGINES, MODELS
from tailproof.tables.model import prepare

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 2))
TABLE = pa.table(
    {
        "a": X[:, 0],
        "b": X[:, 1],
        "cost": X.sum(axis=1) + rng.standard_t(3, 300),
        "sold": np.where(X[:, 0] > 0, "y", "n"),
    }
)
ROWS = {
    "regression": prepare(TABLE, "cost", leave_out=["sold"]),
    "classification": prepare(TABLE, "sold", leave_out=["cost"]),
}


# Of a few rows, whose candidates go on moving: not what this test is about.
@pytest.mark.filterwarnings("ignore:the candidates had not settled:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("task", "name"), [(task, name) for task in MODELS for name in MODELS[task]])
def test_models(task, name):
    rows = ROWS[task]
    model = MODELS[task][name](0).fit(rows.X, rows.y)
    assert model.predict(rows.X).shape == rows.y.shape


def fit_by(engine, task, monkeypatch):
    monkeypatch.setattr(models, "_PIECE", 100)  # three pieces
    cls = {"regression": tp.DCSGDRegressor, "classification": tp.DCSGDClassifier}[task]
    rows = ROWS[task]
    model = ENGINES[engine](cls(k=3, max_iter=2, random_state=0), rows, 0)
    assert model.score(rows.X, rows.y) > 0.3
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("task", ROWS)
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "spark"])
def test_engines(engine, task, monkeypatch):
    fit_by(engine, task, monkeypatch)


# PySpark knows pandas up to version 2; nothing of pandas is used here.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("task", ROWS)
def test_spark(task, monkeypatch, spark):
    # As if there were no session: the one that is made then is that of the test run, with more settings.
    monkeypatch.setattr(type(spark), "getActiveSession", staticmethod(lambda: None))
    fit_by("spark", task, monkeypatch)
