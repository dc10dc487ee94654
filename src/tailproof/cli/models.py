"""Models that ``compare`` knows by name, and engines that ``fit`` knows by name."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import (
    GammaRegressor,
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from tailproof.core.lookup import optional
from tailproof.data import verbs
from tailproof.estimators.linear.estimators import (
    DCSGDClassifier,
    DCSGDRegressor,
    RVSGDClassifier,
    RVSGDRegressor,
)
from tailproof.estimators.linear.fit import LinearSGD
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.tables.model import CLASSIFICATION, REGRESSION, OptionError, PreparedTable

# Rows of a piece that goes to a cluster, and numbers of pieces: each piece costs a task in every pass.
_PIECE, _FEWEST, _MOST = 50_000, 2, 64
_SECONDS = 10.0  # until a master must have answered

# From a seed to a model; baselines that need scaled columns have a scaler.
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


def _glm(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


# Baselines for losses other than the squared error, from a seed; those of this package take any loss.
_BY_LOSS: dict[tuple[str, str], Callable[[int], Any]] = {
    ("constant", "absolute_error"): lambda seed: DummyRegressor(strategy="median"),
    ("linear", "poisson"): lambda seed: _glm(PoissonRegressor(alpha=0.0, max_iter=1000)),
    ("linear", "gamma"): lambda seed: _glm(GammaRegressor(alpha=0.0, max_iter=1000)),
    ("linear", "tweedie"): lambda seed: _glm(TweedieRegressor(power=1.5, alpha=0.0, max_iter=1000)),
    ("linear", "absolute_error"): lambda seed: _glm(QuantileRegressor(alpha=0.0)),
    ("linear", "pinball"): lambda seed: _glm(QuantileRegressor(alpha=0.0)),
    ("boosting", "poisson"): lambda seed: HistGradientBoostingRegressor(loss="poisson", random_state=seed),
    ("boosting", "gamma"): lambda seed: HistGradientBoostingRegressor(loss="gamma", random_state=seed),
    ("boosting", "absolute_error"): lambda seed: HistGradientBoostingRegressor(
        loss="absolute_error", random_state=seed
    ),
}


def model_for(task: str, name: str, loss: str, seed: int) -> tuple[Any, bool]:
    """A model that is fitted by a loss, and whether it is: some know no loss but their own.

    Examples
    --------
    >>> model_for("regression", "dc", "poisson", 0)
    (DCSGDRegressor(loss='poisson', random_state=0), True)
    >>> model_for("regression", "sgd", "poisson", 0)[1]
    False
    """
    model = MODELS[task][name](seed)
    if loss in ("auto", _DEFAULT_LOSS[task]) or (name == "constant" and loss not in _MEDIAN_LOSSES):
        return model, name != "huber"
    if (name, loss) in _BY_LOSS:
        return _BY_LOSS[name, loss](seed), True
    constraints = getattr(model, "_parameter_constraints", {}).get("loss", [])
    takes = getattr(constraints[0], "options", None) if constraints else None
    if isinstance(model, LinearSGD | RobustRegressor) and (takes is None or loss in takes):
        return model.set_params(loss=loss), True
    return model, False


_DEFAULT_LOSS = {REGRESSION: "squared_error", CLASSIFICATION: "log_loss"}
_MEDIAN_LOSSES = ("absolute_error", "pinball", "huber")


@contextmanager
def no_idle_threads(columns: int) -> Iterator[None]:
    """One thread of linear algebra for narrow tables, and as many as there are again afterwards.

    Their products are over before a second thread has begun, which then waits for others in a loop: that
    costs a fit of a million rows processor time and gains it none on the clock.
    """
    with threadpool_limits(1, "blas") if columns <= _NARROW else nullcontext():
        yield


_NARROW = 32  # columns


def fit_locally(estimator: Any, rows: PreparedTable, seed: int, address: str = "") -> Any:
    """Fit in this process."""
    weights = {} if rows.weights is None else {"sample_weight": rows.weights}
    return estimator.fit(rows.X, rows.y, **weights)


def fit_dask(estimator: Any, rows: PreparedTable, seed: int, address: str = "") -> Any:
    """Send rows to a Dask cluster and fit there."""
    array = optional("dask.array", extra="dask")
    order = _order(estimator, rows, seed)
    size = -(-len(rows.y) // _pieces(rows))
    X, y = (array.from_array(values[order], chunks=(size, *values.shape[1:])) for values in (rows.X, rows.y))
    with dask_client(address) as client:
        return nameless(verbs.fit(estimator, X, y, classes=_classes(rows), shuffle=True, client=client))


def fit_spark(estimator: Any, rows: PreparedTable, seed: int, address: str = "") -> Any:
    """Send rows to Spark and fit there."""
    pa = optional("pyarrow", extra="spark")
    order = _order(estimator, rows, seed)
    names = [f"x{j}" for j in range(rows.X.shape[1])]
    columns = {name: rows.X[order, j] for j, name in enumerate(names)} | {"y": rows.y[order]}
    frame = spark_session(address).createDataFrame(pa.table(columns))
    if needs_mixing(estimator):
        frame = frame.repartition(_pieces(rows))
    return nameless(verbs.fit(estimator, frame, "y", names, classes=_classes(rows)))


Fit = Callable[..., Any]
ENGINES: dict[str, Fit] = {"local": fit_locally, "dask": fit_dask, "spark": fit_spark}


@contextmanager
def dask_client(address: str) -> Iterator[Any]:
    """The cluster at an address; without one the current cluster (``DASK_SCHEDULER_ADDRESS``), or none."""
    distributed = optional("distributed", extra="dask")
    if not address:
        yield None
        return
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise OptionError(f"--cluster {address}: there is no Dask scheduler ({error})") from None
    with client:
        yield client


def spark_session(address: str) -> Any:
    """The current session, or one at a master, or on this machine, without Spark's own bars and pages."""
    sql = optional("pyspark.sql", extra="spark")
    active = sql.SparkSession.getActiveSession()
    if active is not None and not address:
        return active
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    _check_master(address)
    builder = sql.SparkSession.builder.master(address) if address else sql.SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # Java's own, with a page of frames
        reason = _reason(error)
        raise OptionError(f"--cluster {address or 'local'}: Spark does not start ({reason})") from None
    # Workers run the interpreter that has this package, not the first one on the path.
    session.sparkContext.pythonExec = sys.executable
    return session


def _check_master(address: str) -> None:
    """Refuse a standalone master that nobody answers at: Spark itself would try for a minute or two."""
    if not address.startswith("spark://"):
        return
    reasons = []
    for place in address.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not (host and port.isdigit()):
            raise OptionError(f"--cluster {address}: the address of a Spark master is spark://host:port")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS):
                return
        except (OSError, OverflowError) as error:
            reasons.append(str(error))
    raise OptionError(f"--cluster {address}: there is no Spark master ({reasons[0]})")


def _reason(error: Exception) -> str:
    """What an error of Java says first of itself."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error).partition("\n")[0].rstrip(".")


def needs_mixing(estimator: Any) -> bool:
    """Whether the order of rows matters: that of a file is rarely random, and blocks are of neighbours."""
    return hasattr(estimator, "partial_fit")


def _order(estimator: Any, rows: PreparedTable, seed: int) -> NDArray[np.intp]:
    """That of the file where it does not matter, so that the fit is the one of this machine."""
    n = len(rows.y)
    return np.random.default_rng(seed).permutation(n) if needs_mixing(estimator) else np.arange(n)


def _pieces(rows: PreparedTable) -> int:
    return min(max(len(rows.y) // _PIECE, _FEWEST), _MOST)


def _classes(rows: PreparedTable) -> Any:
    return np.unique(rows.y) if rows.task == CLASSIFICATION else None


def nameless(estimator: Any) -> Any:
    """The estimator without names of columns."""
    # The encoding knows the names of the columns; the estimator sees numbers.
    for name in ("feature_names_in_", "columns_", "categories_"):
        vars(estimator).pop(name, None)
    return estimator
