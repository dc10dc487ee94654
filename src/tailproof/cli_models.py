"""Models that ``compare`` knows by name, and engines that ``fit`` knows by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import HuberRegressor, LinearRegression, LogisticRegression, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailproof.linear import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor
from tailproof.robust import RobustRegressor
from tailproof.table_model import CLASSIFICATION, REGRESSION, Task

# From a seed to a model; the baselines that need scaled columns get them.
MODELS: dict[str, dict[str, Callable[[int], Any]]] = {
    REGRESSION: {
        "constant": lambda seed: DummyRegressor(),
        "linear": lambda seed: LinearRegression(),
        "huber": lambda seed: make_pipeline(StandardScaler(), HuberRegressor(max_iter=1000)),
        "sgd": lambda seed: make_pipeline(StandardScaler(), SGDRegressor(random_state=seed)),
        "boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
        "robust": lambda seed: RobustRegressor(random_state=seed),
        "dc": lambda seed: DCSGDRegressor(random_state=seed),
        "rv": lambda seed: RVSGDRegressor(random_state=seed),
    },
    CLASSIFICATION: {
        "constant": lambda seed: DummyClassifier(),
        "logistic": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
        "dc": lambda seed: DCSGDClassifier(random_state=seed),
        "rv": lambda seed: RVSGDClassifier(random_state=seed),
    },
}


def fit_here(estimator: Any, rows: Task) -> Any:
    """Fit in this process."""
    return estimator.fit(rows.X, rows.y)


ENGINES: dict[str, Callable[[Any, Task], Any]] = {"local": fit_here}
