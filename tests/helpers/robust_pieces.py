"""RobustRegressor with a small sample, so that few rows are many, and rows with heavy-tailed noise."""

from dataclasses import replace

import numpy as np

import tailproof as tp
from pieces_data import chunks_of, table_of
from tailproof.data.robust_fit import draw_sample
from tailproof.estimators.robust_regressor.tuning import DEFAULT


class SmallSample(tp.RobustRegressor):
    _tuning = replace(DEFAULT, compared_rows=4_000)


class FewChoose(tp.RobustRegressor):
    _tuning = replace(DEFAULT, compared_rows=4_000, judged_rows=1_000)


class LeastSquares(tp.RobustRegressor):
    _tuning = replace(SmallSample._tuning, shares=(), bisquares=())


def heavy_rows(n, noise="lognormal", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    draws = {"lognormal": lambda: rng.lognormal(0, 1, n), "normal": lambda: rng.standard_normal(n)}
    return X, X.sum(axis=1) + draws[noise]()


CATEGORIES = {"region": ["east", "north", "south", "west"], "code": [1, 2, 7]}


def table_with_categories(n, grows=False):
    """Text and numbers whose dummies add up to the constant, a rare level, and noise that may grow."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    region = rng.choice(CATEGORIES["region"], n, p=[0.5, 0.3, 0.19, 0.01])
    code, noise = rng.choice(CATEGORIES["code"], n), rng.lognormal(0, 1.2, n) - np.exp(0.72)
    y = X.sum(axis=1) + 3.0 * (region == "north") - 2.0 * (region == "west") + (code == 7)
    return table_of(X, y + noise * np.exp(0.7 * X[:, 0] * grows), region=region, code=code)


def chosen_rows(X, y, seed):
    """Numbers of the rows of the sample."""
    from tailproof.data.engines.stream import StreamEngine
    from tailproof.data.fit import DataSource
    from tailproof.data.readers.batches import Reading
    from tailproof.data.readers.chunks import ChunkPieces, Chunks, as_chunk
    from tailproof.data.robust_fit import _row_numbers

    chunks = Chunks([as_chunk(pair) for pair in chunks_of(X, y, 2)])
    reading = Reading(tuple(f"x{j}" for j in range(X.shape[1])), "y", "", {}, drop=True)
    source = DataSource(
        StreamEngine(ChunkPieces(chunks, reading)), "", None, X.shape[1], tuple(chunks.rows), pieces=2
    )
    numbers = _row_numbers(source, reading.batch_rows)
    return draw_sample(source, numbers, 4_000, [], np.random.SeedSequence(seed)).places


def assert_close(model, other, what=""):
    """The same model but for rounding."""
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=0, atol=1e-10, err_msg=what)
    assert abs(model.intercept_ - other.intercept_) < 1e-10, what
    assert model.report_.why == other.report_.why
