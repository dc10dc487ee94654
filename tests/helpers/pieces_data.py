"""Data in pieces for the tests: chunks, and the same rows in files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tailproof as tp

ESTIMATORS = {
    "DC": tp.DCSGDRegressor,
    "DC classifier": tp.DCSGDClassifier,
    "RV": tp.RVSGDRegressor,
    "RV classifier": tp.RVSGDClassifier,
}
SETTINGS = {"k": 5, "random_state": 7, "max_iter": 2}


def interrupted(*args):
    raise KeyboardInterrupt


def rows(n=6_000, d=4, seed=0, classes=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** np.linspace(-2, 2, d)
    scores = X @ (2.0 / 10.0 ** np.linspace(-2, 2, d))
    if classes:
        return X, np.digitize(scores + rng.logistic(size=n), np.linspace(-2, 2, classes + 1)[1:-1])
    return X, 3.0 + scores + rng.standard_t(2.5, n)


def chunks_of(X, y, pieces):
    return list(zip(np.array_split(X, pieces), np.array_split(y, pieces), strict=True))


def shifted(array):
    """The same numbers, one byte off what processors like."""
    memory = np.zeros(array.nbytes + 1, dtype=np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def table_of(X, y, **more):
    return pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y} | more)


def write_parquet(folder, chunks):
    paths = [folder / f"part{number:02d}.parquet" for number in range(len(chunks))]
    for path, (X, y) in zip(paths, chunks, strict=True):
        pq.write_table(table_of(X, y), path)
    return paths


def assert_same(model, other):
    """The same candidates, model and risks, to the last bit."""
    np.testing.assert_array_equal(model.candidates_, other.candidates_)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    np.testing.assert_array_equal(model.intercept_, other.intercept_)
    assert model.report_.passes == other.report_.passes
    assert (model.report_.validation_risk is None) == (other.report_.validation_risk is None)
    if model.report_.validation_risk is not None:
        np.testing.assert_array_equal(model.report_.validation_risk, other.report_.validation_risk)
