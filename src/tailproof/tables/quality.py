"""How good a model is on rows that it did not see, against a constant and a plain model, in plain words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    TweedieRegressor,
)
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailproof.core import Array
from tailproof.reports.pages import explained, number, percent
from tailproof.tables.measures import (
    Confusion,
    Group,
    calibration,
    class_scores,
    confusion,
    deviance,
    driving_rows,
    power_of,
    regression_scores,
)
from tailproof.tables.model import CLASSIFICATION, REGRESSION, PreparedTable, TableModel

_MOST_ROWS = 10_000  # that are fitted once more to measure: enough for two digits
_LEAST_ROWS = 40
_NO_ROWS = np.empty(0, dtype=np.intp)
_HELD_OUT = 0.25
_NO_BETTER = "predicts no better than a constant does"
_SAME = 0.01  # differences of R² or accuracy below which two models are called equal
_HANDFUL = 0.01  # share of the rows below which those with half of the squared error are few


@dataclass(frozen=True)
class Quality:
    """Measures of a model, and what they say.

    Attributes
    ----------
    values : dict
        Measures by name; those of the constant and of the plain model have it in front.
    sentences : list of str
    plain : str
        What the plain model is.
    calibration : list of Group
        Predictions and what came, by tenths of the held-out rows; empty for more than two classes.
    confusion : Confusion or None
        Of a classification.
    """

    values: dict[str, float]
    sentences: list[str]
    plain: str = ""
    calibration: list[Group] | tuple[()] = ()
    confusion: Confusion | None = None

    def record(self) -> dict[str, Any]:
        """Everything but the sentences, as plain values."""
        more: dict[str, Any] = {}
        if self.calibration:
            more["calibration"] = [asdict(group) for group in self.calibration]
        if self.confusion:
            more["confusion"] = asdict(self.confusion)
        return self.values | more


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Rows that were kept from a model, and what it says of them; a regression has no classes or shares."""

    y: NDArray[Any]
    weights: Array | None
    predicted: NDArray[Any]
    shares: Array
    classes: NDArray[Any]


def measured(
    rows: PreparedTable, estimator: Any, seed: int, left_out: NDArray[np.intp] = _NO_ROWS
) -> Quality:
    """Fit a copy on three quarters of the rows, or of a sample of them, and measure it on the rest.

    Rows that the fit of all has ``left_out`` as errors are not measured by, and a constant does not see them;
    the plain model does.
    """
    if len(rows.y) < _LEAST_ROWS:
        return Quality(
            {}, [f"{len(rows.y)} rows are too few to hold some out and measure the model on them."]
        )
    train, every = _split(rows, seed)
    test, seen = (np.setdiff1d(part, left_out) if left_out.size else part for part in (every, train))
    power = power_of(estimator)
    words, plain = _plain(estimator, rows.task)
    models = {"": clone(estimator), "constant_": _CONSTANT[rows.task](), "plain_": plain()}
    held_out = {
        name: _held_out(rows, model, seen if name == "constant_" else train, test)
        for name, model in models.items()
    }
    scores: dict[str, float] = {}
    for name, held in held_out.items():
        scores |= {f"{name}{key}": value for key, value in _SCORES[rows.task](held, power).items()}
    if "constant_deviance" in scores:
        scores |= _explained(scores, held_out)
    scores["rows_held_out"] = float(test.size)
    sentences = _SENTENCES[rows.task](scores, words, rows.target_type == "date")
    if every.size > test.size:
        scores["rows_not_counted"] = float(every.size - test.size)
        sentences.append(_not_counted(every.size - test.size))
    return Quality(scores, sentences, words, *_PICTURES[rows.task](held_out[""]))


def left_out_of(estimator: Any) -> NDArray[np.intp]:
    """Rows that a fit in memory has left out as errors, among those that it was given."""
    report = estimator.report_
    found = getattr(report, "glitches", None)
    found = getattr(report, "left_out", None) if found is None else found
    return _NO_ROWS if found is None else np.asarray(found, dtype=np.intp)


def _not_counted(count: int) -> str:
    one = count == 1
    return (
        f"{count:,} of the unseen rows {'is' if one else 'are'} not counted here: the model leaves "
        f"{'it' if one else 'them'} out as {'an error' if one else 'errors'} (see Details)."
    )


def _held_out(rows: PreparedTable, model: Any, train: NDArray[np.intp], test: NDArray[np.intp]) -> _HeldOut:
    fitted = model.fit(rows.X[train], rows.y[train], **_weights(rows, train, model))
    weights = None if rows.weights is None else rows.weights[test]
    shares, classes = np.empty((0, 0)), np.empty(0)
    if rows.task == CLASSIFICATION:
        shares, classes = fitted.predict_proba(rows.X[test]), fitted.classes_
    return _HeldOut(rows.y[test], weights, fitted.predict(rows.X[test]), shares, classes)


def _split(rows: PreparedTable, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    places = _sample(len(rows.y), np.random.default_rng(seed))
    labels = rows.y[places] if rows.task == CLASSIFICATION else None
    rare = labels is not None and np.unique(labels, return_counts=True)[1].min() < 2
    train, test = train_test_split(
        places, test_size=_HELD_OUT, random_state=seed, stratify=None if rare else labels
    )
    return train, test


def _sample(count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows to measure by; a few of many are drawn without putting all in order."""
    if count <= _MOST_ROWS:
        return rng.permutation(count)
    return rng.choice(count, _MOST_ROWS, replace=False)


def _weights(rows: PreparedTable, train: NDArray[np.intp], model: Any) -> dict[str, Any]:
    if rows.weights is None:
        return {}
    step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    return {f"{step}sample_weight": rows.weights[train]}


def _scaled(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: make_pipeline(StandardScaler(), make())


_CONSTANT = {REGRESSION: DummyRegressor, CLASSIFICATION: DummyClassifier}
# The plain model by the loss, or else by the task.
_PLAIN: dict[str, tuple[str, Callable[[], Any]]] = {
    REGRESSION: ("least squares", LinearRegression),
    CLASSIFICATION: ("logistic regression", _scaled(lambda: LogisticRegression(max_iter=1000))),
    "poisson": ("a Poisson GLM", _scaled(lambda: PoissonRegressor(alpha=1e-6, max_iter=1000))),
    "gamma": ("a gamma GLM", _scaled(lambda: GammaRegressor(alpha=1e-6, max_iter=1000))),
}


def _plain(estimator: Any, task: str) -> tuple[str, Callable[[], Any]]:
    """What a model is measured against, in words and from nothing."""
    loss, power = getattr(estimator, "loss", ""), power_of(estimator)
    if loss == "tweedie":
        glm = _scaled(lambda: TweedieRegressor(power=power, alpha=1e-6, max_iter=1000))
        return "a Tweedie GLM", glm
    return _PLAIN.get(loss, _PLAIN[task])


def _regression_values(held: _HeldOut, power: float | None) -> dict[str, float]:
    scores = regression_scores(held.y, held.predicted, held.weights)
    if power is not None:
        scores["deviance"] = deviance(held.y, held.predicted, power, held.weights)
    return scores


def _class_values(held: _HeldOut, power: float | None) -> dict[str, float]:
    return class_scores(held.y, held.classes, held.predicted, held.shares, held.weights)


_SCORES = {REGRESSION: _regression_values, CLASSIFICATION: _class_values}


def _explained(scores: dict[str, float], held_out: dict[str, _HeldOut]) -> dict[str, float]:
    """Share of the constant's deviance that each model explains."""
    whole = scores["constant_deviance"]
    if not whole > 0:
        return {}
    return {f"{name}deviance_explained": 1 - scores[f"{name}deviance"] / whole for name in held_out}


def _regression_pictures(held: _HeldOut) -> tuple[list[Group], None]:
    return calibration(held.y, held.predicted, held.weights), None


def _class_pictures(held: _HeldOut) -> tuple[list[Group] | tuple[()], Confusion]:
    table = confusion(held.y, held.predicted, held.classes)
    if len(held.classes) != 2:
        return (), table
    hits = (held.y == held.classes[1]).astype(np.float64)
    return calibration(hits, held.shares[:, 1], held.weights), table


_PICTURES: dict[str, Callable[[_HeldOut], tuple[Any, Any]]] = {
    REGRESSION: _regression_pictures,
    CLASSIFICATION: _class_pictures,
}


def _error_said(error: float, days: bool) -> str:
    said = number(error)
    return f"{said} day{'s' * (said != '1')}" if days else said


def _regression_sentences(scores: dict[str, float], plain: str, days: bool) -> list[str]:
    share, of = ("deviance_explained", "deviance") if "deviance_explained" in scores else ("r2", "variation")
    better, other = scores[share], scores[f"plain_{share}"]
    if better <= max(scores[f"constant_{share}"], 0) + 1e-9:
        first = "It predicts unseen rows no better than a constant does"
    else:
        first = f"Explains {percent(better)} of the {of} on unseen rows (a constant: 0%)"
    middle, mean = (_error_said(scores[name], days) for name in ("median_error", "mae"))
    typical = f"typical error {middle}, on average {mean}"
    sentences = [f"{first}; {_against(better, other)} {plain} ({explained(max(other, -9.99))}); {typical}."]
    if of == "deviance" and "lift" in scores:
        sentences.append(
            f"The tenth of the rows with the highest predictions has {scores['lift']:.2g} times the mean of "
            f"all; Gini index {scores['gini']:.2f}."
        )
    return sentences


def _against(better: float, other: float) -> str:
    if abs(better - other) <= _SAME:
        # As a reader sees them: 90% is not "no worse than" 91%.
        return (
            "no worse than"
            if better >= other or explained(better) == explained(other)
            else "about as good as"
        )
    return "better than" if better > other else "worse than"


def _classification_sentences(scores: dict[str, float], plain: str, days: bool) -> list[str]:
    right, constant, other = (scores[f"{name}accuracy"] for name in ("", "constant_", "plain_"))
    auc = f", AUC {scores['auc']:.2f}" if "auc" in scores else ""
    first = f"Right in {percent(right)} of unseen rows{auc}"
    if right <= constant:
        first += ", which is no better than always naming the most frequent class"
    return [f"{first} (the most frequent class: {percent(constant)}; {plain}: {percent(other)})."]


_SENTENCES = {REGRESSION: _regression_sentences, CLASSIFICATION: _classification_sentences}


@dataclass(frozen=True, eq=False)
class Drivers:
    """Rows with half of all squared error of a model, largest first.

    Attributes
    ----------
    rows : array of int
        Places among the rows that were learned from.
    count : int
        Of all rows.
    predicted : array
        For those rows.
    """

    rows: NDArray[np.intp]
    count: int
    predicted: NDArray[Any]

    @property
    def few(self) -> bool:
        """Whether so few have so much that they drive an ordinary fit."""
        return 0 < self.rows.size <= max(1, _HANDFUL * self.count)

    def sentence(self) -> str:
        """What they are, in words."""
        if not self.few:
            return "No handful of rows drives the result."
        one = self.rows.size == 1
        return (
            f"{self.rows.size:,} row{'s' * (not one)} of {self.count:,} drive{'s' * one} the result: half of "
            f"all squared error is {'its' if one else 'theirs'}."
        )


def drivers_of(rows: PreparedTable, estimator: Any, left_out: NDArray[np.intp] = _NO_ROWS) -> Drivers | None:
    """Rows that drive the result of a regression; None for classes and counts, whose few are no accident.

    Those that the fit has ``left_out`` drive nothing.
    """
    if rows.task != REGRESSION or getattr(estimator, "loss", "") == "poisson":
        return None
    predicted = estimator.predict(rows.X)
    y = rows.y
    if left_out.size:
        y = y.copy()
        y[left_out] = predicted[left_out]
    drivers = driving_rows(y, predicted, rows.weights)
    return Drivers(drivers, len(y) - left_out.size, predicted[drivers])


def on_test_rows(model: TableModel, table: Any, rows: PreparedTable, name: str) -> Quality:
    """Measures of a model on a table of its own, whose rows count as those that it learned from."""
    predicted = model.predict(table)["prediction"]
    if model.task == REGRESSION:
        exposures = model.roles.exposures(table)
        scores = _test_scores(model, rows, _in_numbers(predicted) / (1.0 if exposures is None else exposures))
        words = _test_words(scores, model.target_type == "date")
    else:
        scores = {"accuracy": float(np.average(predicted == rows.y, weights=rows.weights))}
        words = f"right in {percent(scores['accuracy'])}"
    count = len(rows.y)
    return Quality(scores | {"rows": float(count)}, [f"On the {count:,} rows of {name}: {words}."])


def _in_numbers(predicted: NDArray[Any]) -> Array:
    """Predictions as numbers; dates are learned as days."""
    days = predicted.dtype.kind == "M"
    values = (predicted - np.datetime64(0, "D")) / np.timedelta64(1, "D") if days else predicted
    return np.asarray(values, dtype=np.float64)


def _test_scores(model: TableModel, rows: PreparedTable, predicted: Array) -> dict[str, float]:
    """Measures, with the share of deviance that is explained where the loss has one."""
    power = power_of(model.estimator)
    scores = regression_scores(rows.y, predicted, rows.weights)
    if power is None:
        return scores
    constant = np.full(len(rows.y), np.average(rows.y, weights=rows.weights))
    whole, left = (deviance(rows.y, each, power, rows.weights) for each in (constant, predicted))
    return scores | {"deviance": left} | ({"deviance_explained": 1 - left / whole} if whole > 0 else {})


def _test_words(scores: dict[str, float], days: bool) -> str:
    share, of = ("deviance_explained", "deviance") if "deviance_explained" in scores else ("r2", "variation")
    good = f"explains {percent(scores[share])} of the {of}" if scores[share] > 0 else _NO_BETTER
    order = f"; Gini index {scores['gini']:.2f}" if of == "deviance" and "gini" in scores else ""
    return f"{good}; typical error {_error_said(scores['median_error'], days)}{order}"
