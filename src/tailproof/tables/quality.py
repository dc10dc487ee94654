"""How good a model is on rows that it did not see, against a constant and a plain model, in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailproof.reports.pages import number
from tailproof.tables.model import CLASSIFICATION, REGRESSION, PreparedTable, TableModel

_MOST_ROWS = 10_000  # that are fitted once more to measure: enough for two digits
_LEAST_ROWS = 40
_HELD_OUT = 0.25
_SAME = 0.01  # differences of R² or accuracy below which two models are called equal


@dataclass(frozen=True)
class Quality:
    """Measures of a model, and what they say.

    Attributes
    ----------
    values : dict
        Measures by name; those of the constant and of the plain model have it in front.
    sentences : list of str
    """

    values: dict[str, float]
    sentences: list[str]


def measured(rows: PreparedTable, estimator: Any, seed: int) -> Quality:
    """Fit a copy on three quarters of the rows, or of a sample of them, and measure it on the rest."""
    if len(rows.y) < _LEAST_ROWS:
        return Quality(
            {}, [f"{len(rows.y)} rows are too few to hold some out and measure the model on them."]
        )
    train, test = _split(rows, seed)
    models = {"": clone(estimator), "constant": _CONSTANT[rows.task](), "plain": _PLAIN[rows.task]()}
    scores: dict[str, float] = {}
    for name, model in models.items():
        fitted = model.fit(rows.X[train], rows.y[train], **_weights(rows, train, name))
        scores |= _scores(rows.task, fitted, rows.X[test], rows.y[test], rows.weights, test, name)
    scores["rows_held_out"] = float(test.size)
    return Quality(scores, _SENTENCES[rows.task](scores))


def _split(rows: PreparedTable, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    places = np.random.default_rng(seed).permutation(len(rows.y))[:_MOST_ROWS]
    labels = rows.y[places] if rows.task == CLASSIFICATION else None
    rare = labels is not None and np.unique(labels, return_counts=True)[1].min() < 2
    train, test = train_test_split(
        places, test_size=_HELD_OUT, random_state=seed, stratify=None if rare else labels
    )
    return train, test


def _weights(rows: PreparedTable, train: NDArray[np.intp], name: str) -> dict[str, Any]:
    if rows.weights is None:
        return {}
    key = (
        "logisticregression__sample_weight"
        if name == "plain" and rows.task == CLASSIFICATION
        else "sample_weight"
    )
    return {key: rows.weights[train]}


_CONSTANT = {REGRESSION: DummyRegressor, CLASSIFICATION: DummyClassifier}
_PLAIN: dict[str, Any] = {
    REGRESSION: LinearRegression,
    CLASSIFICATION: lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
}


def _scores(
    task: str, model: Any, X: Any, y: Any, weights: Any, test: NDArray[np.intp], name: str
) -> dict[str, float]:
    weight = None if weights is None else weights[test]
    prefix = f"{name}_" if name else ""
    if task == REGRESSION:
        scores = regression_scores(y, model.predict(X), weight)
    else:
        scores = {"accuracy": float(accuracy_score(y, model.predict(X), sample_weight=weight))}
        shares = model.predict_proba(X)
        if shares.shape[1] == 2 and np.unique(y).size == 2:
            scores["auc"] = float(roc_auc_score(y == model.classes_[1], shares[:, 1], sample_weight=weight))
    return {f"{prefix}{key}": value for key, value in scores.items()}


def regression_scores(y: Any, predicted: Any, weights: Any = None) -> dict[str, float]:
    """R², root of the mean squared error, mean and median absolute error.

    Examples
    --------
    >>> regression_scores(np.array([0.0, 2.0, 4.0]), np.array([0.0, 2.0, 3.0]))["median_error"]
    0.0
    """
    gaps, middle = np.abs(y - predicted), np.average(y, weights=weights)
    squares, spread = np.average(gaps**2, weights=weights), np.average((y - middle) ** 2, weights=weights)
    return {
        "r2": float(1 - squares / spread) if spread > 0 else float("nan"),
        "rmse": float(np.sqrt(squares)),
        "mae": float(np.average(gaps, weights=weights)),
        "median_error": float(np.median(gaps)),
    }


def _regression_sentences(scores: dict[str, float]) -> list[str]:
    better, plain = scores["r2"], scores["plain_r2"]
    verb = "as well as" if abs(better - plain) <= _SAME else "better than" if better > plain else "worse than"
    if better <= scores["constant_r2"] + 1e-9:
        first = "It predicts unseen rows no better than a constant does"
    else:
        first = f"Explains {better:.0%} of the variation on unseen rows (a constant: 0%)"
    typical = f"typical error {number(scores['median_error'])}, on average {number(scores['mae'])}"
    return [f"{first}; {verb} least squares ({max(plain, -9.99):.0%}); {typical}."]


def _classification_sentences(scores: dict[str, float]) -> list[str]:
    right, constant, plain = (scores[f"{name}accuracy"] for name in ("", "constant_", "plain_"))
    auc = f", AUC {scores['auc']:.2f}" if "auc" in scores else ""
    first = f"Right in {right:.0%} of unseen rows{auc}"
    if right <= constant:
        first += ", which is no better than always naming the most frequent class"
    return [f"{first} (the most frequent class: {constant:.0%}; logistic regression: {plain:.0%})."]


_SENTENCES = {REGRESSION: _regression_sentences, CLASSIFICATION: _classification_sentences}


def on_test_rows(model: TableModel, table: Any, y: Any, name: str) -> Quality:
    """Measures of a model on a table of its own."""
    predicted = model.predict(table)["prediction"]
    if model.task == REGRESSION:
        scores = regression_scores(y, np.asarray(predicted, dtype=np.float64))
        words = (
            f"explains {scores['r2']:.0%} of the variation; typical error {number(scores['median_error'])}"
        )
    else:
        scores = {"accuracy": float(np.mean(predicted == y))}
        words = f"right in {scores['accuracy']:.0%}"
    return Quality(scores | {"rows": float(len(y))}, [f"On the {len(y):,} rows of {name}: {words}."])
