"""Dask on two processes of this machine: the same candidates as here, few bytes, and lost workers."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import tailproof as tp
from pieces_data import ESTIMATORS, assert_same, chunks_of, rows
from robust_pieces import CATEGORIES, SmallSample, assert_close, heavy_rows, table_with_categories

distributed = pytest.importorskip("distributed", reason="needs pip install 'tailproof[dask]'")
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402

from tailproof.core.rules import RULES  # noqa: E402
from tailproof.data.dealing import Dealing  # noqa: E402
from tailproof.data.engines import dask as engine  # noqa: E402
from tailproof.data.engines import dask_parts  # noqa: E402
from tailproof.data.training import Training  # noqa: E402

SETTINGS = {"random_state": 3, "max_iter": 2}
PIECES = 6


def arrays(X, y, pieces=PIECES):
    sizes = tuple(len(part) for part in np.array_split(y, pieces))
    return da.from_array(X, chunks=(sizes, -1)), da.from_array(y, chunks=(sizes,))


def frame(X, y, pieces=PIECES):
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y)
    parts = [table.iloc[some] for some in np.array_split(np.arange(len(y)), pieces)]
    return dd.concat([dd.from_pandas(part, npartitions=1) for part in parts])


def test_without_a_client_there_is_one_for_the_time_of_the_fit():
    X, y = rows(1_200)
    with pytest.raises(ValueError, match="No"):
        distributed.get_client()
    model = tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), arrays(X, y))
    with pytest.raises(ValueError, match="No"):
        distributed.get_client()
    assert_same(model, tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), chunks_of(X, y, PIECES), shuffle=False))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("k", [4, 9])
def test_same_blocks_same_candidates(client, name, k):
    X, y = rows(3_000, classes=3 if "classifier" in name else 0)
    make = ESTIMATORS[name]
    model = tp.fit(make(k=k, **SETTINGS), arrays(X, y))
    here = tp.fit(make(k=k, **SETTINGS), chunks_of(X, y, PIECES), shuffle=False)
    assert_same(model, here)
    np.testing.assert_array_equal(model.report_.block_sizes, here.report_.block_sizes)


@pytest.mark.parametrize("shuffle", [True, False])
def test_several_workers_for_each_candidate_are_the_same_as_from_chunks(client, shuffle):
    X, y = rows(1_200)
    model, here = (tp.RVSGDRegressor(k=2, **SETTINGS) for _ in range(2))
    more = {"shuffle": shuffle, "workers_per_candidate": 3}
    assert_same(tp.fit(model, arrays(X, y), **more), tp.fit(here, chunks_of(X, y, PIECES), **more))
    assert model.report_.data == "6 Dask partitions, 3 workers per candidate"


@pytest.mark.parametrize("rounds", [2, (9, 4)])
def test_rounds_are_the_same_as_from_chunks(client, rounds):
    X, y = rows(1_200)
    k = {} if isinstance(rounds, tuple) else {"k": 4}
    model, here = (tp.DCSGDRegressor(rounds=rounds, random_state=3, max_iter=1, **k) for _ in range(2))
    assert_same(tp.fit(model, arrays(X, y)), tp.fit(here, chunks_of(X, y, PIECES), shuffle=False))
    assert len(model.report_.rounds) == 2


@pytest.mark.parametrize("name", RULES)
def test_every_learner_is_the_same_as_from_chunks(client, name):
    X, y = rows(1_200)
    given = {"constraint": ("simplex", 2.0)} if name == "entropy" else {}
    model, here = (
        tp.RVSGDRegressor(learner=name, k=4, random_state=3, max_iter=2, **given) for _ in range(2)
    )
    assert_same(tp.fit(model, arrays(X, y)), tp.fit(here, chunks_of(X, y, PIECES), shuffle=False))


@pytest.mark.parametrize(("bad", "left_out"), [(12, 12), (300, 0)])
def test_far_rows_are_left_out_as_from_chunks(client, bad, left_out):
    X, y = rows(1_200)
    X[np.linspace(0, 1_199, bad).astype(int), 1] = 1e9
    model, here = (tp.RVSGDRegressor(k=4, **SETTINGS) for _ in range(2))
    with pytest.warns(tp.TwoPopulationsWarning):
        assert_same(tp.fit(model, arrays(X, y)), tp.fit(here, chunks_of(X, y, PIECES), shuffle=False))
    assert model.report_.far_rows == here.report_.far_rows == left_out
    assert model.report_.outlying == here.report_.outlying


def test_masked_values_are_refused(client):
    X, y = rows(600)
    # Every partition has some, and they are visited at once: any may be named.
    with pytest.raises(ValueError, match=r"partition \d.*: X has masked values"):
        tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), arrays(np.ma.masked_greater(X, 1.0), y))


def test_frames_scores_and_predictions(client):
    X, y = rows(2_000)
    data = frame(X, y)
    model = tp.fit(tp.DCSGDRegressor(k=4, **SETTINGS), data)
    assert_same(model, tp.fit(tp.DCSGDRegressor(k=4, **SETTINGS), arrays(X, y)))
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    expected = X @ model.coef_ + model.intercept_
    np.testing.assert_allclose(tp.predict(model, data).compute(), expected, rtol=1e-9)
    again = tp.fit(tp.DCSGDRegressor(k=4, **SETTINGS), arrays(X, y))
    np.testing.assert_allclose(tp.predict(again, arrays(X, y)[0]).compute(), expected, rtol=1e-9)
    r2 = 1 - ((y - expected) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert tp.score(model, data) == pytest.approx(r2, rel=1e-9)
    assert tp.score(again, arrays(X, y)) == pytest.approx(r2, rel=1e-9)


def test_a_robust_regressor_is_the_same_as_from_chunks(client):
    X, y = heavy_rows(9_000)
    X[100, 1] = np.nan
    here = tp.fit(SmallSample(random_state=0), chunks_of(X, y, 2), on_missing="drop")
    model = tp.fit(SmallSample(random_state=0), frame(X, y), on_missing="drop")
    assert_close(model, here)
    assert model.report_.dropped_rows == 1
    assert "Dask" in model.report_.data


@pytest.mark.parametrize("held", [False, True])
def test_arrays_that_travel_give_a_robust_regressor_the_same_model(client, held):
    X, y = heavy_rows(9_000)  # a worker that is sent rows finds them wherever the message put them
    pair = arrays(X, y, 3)
    data = tuple(array.persist() for array in pair) if held else pair
    model = tp.fit(SmallSample(random_state=0), data)
    assert_close(model, tp.fit(SmallSample(random_state=0), chunks_of(X, y, 3)))


@pytest.mark.parametrize("grows", [False, True])
def test_categories_give_a_robust_regressor_the_same_model_as_files_and_chunks(client, tmp_path, grows):
    whole = table_with_categories(9_000, grows)
    for number, start in enumerate(range(0, 9_000, 3_000)):
        pq.write_table(whole.slice(start, 3_000), tmp_path / f"{number}.parquet")
    here = tp.fit(SmallSample(random_state=0), tmp_path, categories=CATEGORIES)
    chunks = iter(whole.to_batches(max_chunksize=1_100))
    assert_close(tp.fit(SmallSample(random_state=0), chunks, categories=CATEGORIES), here, "chunks")
    data = dd.from_pandas(whole.to_pandas(), npartitions=3)
    far = tp.fit(SmallSample(random_state=0), data, categories=CATEGORIES)
    assert_close(far, here, "Dask")
    assert list(far.feature_names_in_) == list(here.feature_names_in_)
    predicted = np.asarray(tp.predict(far, data).compute())
    np.testing.assert_allclose(predicted, tp.predict(here, tmp_path), rtol=0, atol=1e-10)


def test_a_frame_and_a_series(client):
    X, y = rows(1_200)
    whole = frame(X, y)
    pair = whole[["x0", "x1", "x2", "x3"]], whole["y"].rename("cost")
    model = tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), pair)
    assert_same(model, tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), whole))
    assert tp.score(model, pair) == tp.score(model, whole)
    with pytest.raises(ValueError, match="the features have a column 'x3'"):
        tp.fit(tp.DCSGDRegressor(k=3), pair, target="x3")
    with pytest.raises(ValueError, match="must be a Dask series of the same partitions"):
        tp.fit(tp.DCSGDRegressor(k=3), (pair[0], whole["y"].repartition(npartitions=2)))


def test_sorted_partitions_are_noticed_and_can_be_mixed(client):
    X, y = rows(3_000)
    order = np.argsort(y)
    with pytest.warns(UserWarning, match="look sorted.*shuffle=True"):
        alone = tp.fit(tp.DCSGDRegressor(k=6, **SETTINGS), arrays(X[order], y[order]))
    mixed = tp.fit(tp.DCSGDRegressor(k=6, **SETTINGS), arrays(X[order], y[order]), shuffle=True)
    chunks = chunks_of(X[order], y[order], PIECES)
    with pytest.warns(UserWarning, match="shuffle=True visits them as they lie"):
        in_chunks = tp.fit(tp.DCSGDRegressor(k=6, **SETTINGS), chunks, shuffle=True)
    assert_same(mixed, in_chunks)
    assert mixed.score(X, y) > alone.score(X, y)


def test_bad_rows_name_partition_and_column(client):
    X, y = rows(1_200)
    X[700, 2] = np.nan
    with pytest.raises(ValueError, match=r"partition 3: column 'feature 2' .* row 100: "):
        tp.fit(tp.DCSGDRegressor(k=3), arrays(X, y))
    model = tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), arrays(X, y), on_missing="drop")
    assert model.report_.dropped_rows == 1
    assert_same(
        model,
        tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), chunks_of(X, y, PIECES), shuffle=False, on_missing="drop"),
    )


def test_weights(client):
    X, y = rows(1_200)
    weights = np.random.default_rng(0).integers(0, 3, 1_200).astype(float)
    parts = [
        (*chunk, w) for chunk, w in zip(chunks_of(X, y, PIECES), np.array_split(weights, PIECES), strict=True)
    ]
    model = tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), arrays(X, y), sample_weight=weights)
    assert_same(
        model, tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), parts, sample_weight="given", shuffle=False)
    )


@pytest.mark.parametrize(
    "model",
    [
        tp.DivideAndConquer(LinearRegression(), k=5, random_state=0, n_jobs=-1),
        tp.RobustValidation(DecisionTreeRegressor(max_depth=3), k=3, random_state=0, n_jobs=-1),
    ],
    ids=["merge", "validate"],
)
def test_joblib_on_dask_gives_what_it_gives_here(client, model):
    X, y = rows(600)
    here = clone(model).set_params(n_jobs=1).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        there = clone(model).fit(X, y)
    np.testing.assert_array_equal(there.predict(X), here.predict(X))


def slow(block):
    time.sleep(0.3)
    return block


def kill_a_worker(client):
    """The nanny starts another one, so that the cluster is whole again for the other tests."""
    process = next(iter(client.cluster.workers.values())).process.process
    os.kill(process.pid, signal.SIGKILL)


def fit_in_a_thread(data, client):
    """Start a fit; give its thread, and the list that it puts the model into."""
    found = []

    def run():
        found.append(tp.fit(tp.DCSGDRegressor(k=4, random_state=3, max_iter=6), data, client=client))

    fit = threading.Thread(target=run, daemon=True)
    fit.start()
    return fit, found


def assert_it_ends_as_here(fit, found, X, y, client):
    fit.join(120)
    assert not fit.is_alive(), "the fit hangs"
    assert found
    model = tp.DCSGDRegressor(k=4, random_state=3, max_iter=6)
    assert_same(found[0], tp.fit(model, chunks_of(X, y, PIECES), shuffle=False))
    # The other tests want a whole cluster; on a busy machine a nanny has to be told, once in a while.
    try:
        client.wait_for_workers(2, timeout=60)
    except TimeoutError:
        client.restart(timeout=120)


@pytest.mark.parametrize("share", [0.5, 0.0], ids=["held", "loaded by tasks"])
def test_a_worker_killed_in_mid_fit(client, monkeypatch, share):
    monkeypatch.setattr(dask_parts, "_SHARE", share)
    X, y = rows(3_000)
    data = arrays(X, y)
    fit, found = fit_in_a_thread((data[0].map_blocks(slow, dtype=float), data[1]), client)
    time.sleep(1.2)  # in the middle of loading, or soon after
    kill_a_worker(client)
    assert_it_ends_as_here(fit, found, X, y, client)


def test_a_worker_killed_when_a_pass_begins(client, monkeypatch):
    """What all tasks need goes out while the scheduler does not know yet that one of its workers is gone."""
    X, y = rows(3_000)
    send, sent = engine.DaskEngine._shared, []

    def send_and_kill(self, what):
        if not sent:
            kill_a_worker(client)
        sent.append(what)
        return send(self, what)

    monkeypatch.setattr(engine.DaskEngine, "_shared", send_and_kill)
    fit, found = fit_in_a_thread(arrays(X, y), client)
    assert_it_ends_as_here(fit, found, X, y, client)


def count_writes():
    """Count what this process writes to its connections from now on."""
    from distributed.comm.tcp import TCP

    if not hasattr(TCP, "written"):
        write = TCP.write

        async def counted(self, *args, **kwargs):
            size = await write(self, *args, **kwargs)
            TCP.written += size
            return size

        TCP.write = counted
    TCP.written = 0


def written():
    from distributed.comm.tcp import TCP

    return TCP.written


def test_only_candidates_travel(client):
    """Four times the rows, the same bytes between client, scheduler and workers."""
    moved = []
    for n in (20_000, 80_000):
        X = da.random.default_rng(0).standard_normal((n, 20), chunks=(n // 8, -1)).persist()
        y = X.sum(axis=1).persist()
        distributed.wait([X, y])
        count_writes()
        client.run(count_writes)
        tp.fit(tp.DCSGDRegressor(k=4, **SETTINGS), (X, y))
        moved.append(written() + sum(client.run(written).values()))
    # Heartbeats come as time goes by; the larger X has 12.8 MB.
    assert moved[1] < 1.5 * moved[0]
    assert moved[1] < 2_000_000


class TestTrouble:
    def test_partitions_without_rows_do_not_vote(self, client):
        X, y = rows(3_000)
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(4)]).assign(y=y, day=np.arange(3_000) // 250)
        data = dd.from_pandas(table, npartitions=12, sort=False)
        kept = data[data.day < 3]
        model = tp.fit(tp.DCSGDRegressor(random_state=0), kept, features=[f"x{j}" for j in range(4)])
        assert model.report_.block_sizes.min() > 0
        assert model.report_.block_sizes.sum() == 750
        here = tp.DCSGDRegressor(random_state=0).fit(X[:750], y[:750])
        assert model.score(table[[f"x{j}" for j in range(4)]], y) > 0.9 * here.score(X, y)
        # The same rule in a stream: the same blocks, to the last bit.
        parts = [part.compute().to_numpy() for part in kept.partitions]
        chunks = [(np.ascontiguousarray(part[:, :4]), part[:, 4]) for part in parts]
        assert_same(model, tp.fit(tp.DCSGDRegressor(random_state=0), chunks, shuffle=False))

    def test_the_original_exception_is_raised(self, client):
        def missing(part):
            raise FileNotFoundError("there is no part 3 in the store")

        X, y = arrays(*rows(600))
        with pytest.raises(FileNotFoundError, match="there is no part 3 in the store"):
            tp.fit(tp.DCSGDRegressor(k=2), (X.map_blocks(missing, dtype=float), y))

    def test_arrays_of_unknown_chunks(self, client):
        X, y = rows(1_200)
        data = frame(X, y)
        values, target = data[[f"x{j}" for j in range(4)]].to_dask_array(), data["y"].to_dask_array()
        model = tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), (values, target))
        assert_same(model, tp.fit(tp.DCSGDRegressor(k=3, **SETTINGS), arrays(X, y)))
        assert np.isnan(values.shape[0])
        assert np.isnan(target.shape[0])
        with pytest.raises(ValueError, match=r"X has 1200 rows, .* shape \(100,\)"):
            tp.fit(tp.DCSGDRegressor(k=3), (values, y[:100]))

    def test_a_closed_client_is_refused(self):
        with distributed.Client(processes=False, dashboard_address=None) as closed:
            pass
        with pytest.raises(ValueError, match="the Dask client is closed"):
            tp.fit(tp.DCSGDRegressor(k=2), arrays(*rows(600)), client=closed)

    @pytest.mark.parametrize(
        ("workers", "words"),
        [({"a": {"status": "paused"}}, "all of its workers are paused"), ({}, "it has no workers")],
    )
    def test_a_cluster_that_makes_no_progress_says_why(self, client, monkeypatch, workers, words):
        monkeypatch.setattr(engine, "_PATIENCE", 0.1)
        monkeypatch.setattr(engine, "_STALLED", 0.2)
        monkeypatch.setattr(client, "scheduler_info", lambda n_workers: {"workers": workers})
        X, y = arrays(*rows(600))
        slow = X.map_blocks(lambda part: time.sleep(0.6) or part, dtype=float, name=words)
        with pytest.warns(UserWarning, match=f"the Dask cluster makes no progress: {words}"):
            tp.fit(tp.DCSGDRegressor(k=2, max_iter=1), (slow, y))

    def test_slow_tasks_are_nobodys_concern(self, client, monkeypatch):
        monkeypatch.setattr(engine, "_PATIENCE", 0.1)
        monkeypatch.setattr(engine, "_STALLED", 0.2)
        X, y = arrays(*rows(600))
        slow = X.map_blocks(lambda part: time.sleep(0.6) or part, dtype=float)
        tp.fit(tp.DCSGDRegressor(k=2, max_iter=1), (slow, y))

    def test_partitions_on_one_worker_share_a_task(self, client, monkeypatch):
        X, y = arrays(*rows(1_200), 24)
        submit, tasks = client.submit, []

        def counted(function, *args, **more):
            tasks.append(function)
            return submit(function, *args, **more)

        monkeypatch.setattr(client, "submit", counted)
        model = tp.fit(tp.DCSGDRegressor(k=2, **SETTINGS), (X, y))
        # Tiny ones join those of their block: a look, and two passes of two candidates.
        assert tasks.count(engine._train_pieces) == 4
        assert tasks.count(engine._over_pieces) <= 4
        assert model.report_.block_sizes.sum() == 1_200


def test_a_pass_goes_on_from_candidates_that_are_held():
    dealing = Dealing(4, 6, 0)
    chains = list(engine._chains(Training(None, dealing, 0), dict(enumerate("abcd")), 3))
    assert [chain.candidates for chain in chains] == [{0: "a", 3: "d"}, {1: "b"}, {2: "c"}]
    assert all(chain.pieces == dealing.visits(0) for chain in chains)
    chain = chains[0]
    assert chain.resumed(set()) == (0, {0: "a", 3: "d"})
    first, second, third = (SimpleNamespace(key=key) for key in ("first", "second", "third"))
    chain.steps = [(2, first), (4, second), (6, third)]
    assert chain.resumed({"first", "second"}) == (4, second)
    assert chain.steps == [(2, first), (4, second)]


def test_a_task_that_fails_by_itself_runs_once(client, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_parts, "_SHARE", 0.0)  # so that our own tasks load partitions
    random = da.random.default_rng(0)
    X, y = (random.standard_normal(size, chunks=100) for size in ((600, 4), 600))

    def failing(part):
        with (tmp_path / "runs").open("a") as file:
            file.write(f"{float(part[0, 0])!r}\n")
        raise ZeroDivisionError("no such exchange rate")

    bad = da.map_blocks(failing, X, dtype=float, meta=np.empty((0, 0)))
    assert dask_parts.parts_of(client, (bad, y)).lazy
    with pytest.raises(ZeroDivisionError, match="no such exchange rate"):
        tp.fit(tp.DCSGDRegressor(k=2, **SETTINGS), (bad, y))
    runs = (tmp_path / "runs").read_text().split()
    assert len(runs) == len(set(runs)) > 0


def test_rows_that_every_candidate_visits_are_dealt_once_for_many(client, monkeypatch):
    X, y = arrays(*rows(1_200), 12)
    submit, tasks = client.submit, []

    def counted(function, *args, **more):
        tasks.append(function is engine._train_pieces)
        return submit(function, *args, **more)

    monkeypatch.setattr(client, "submit", counted)
    settings = SETTINGS | {"max_iter": 1}
    model = tp.fit(tp.DCSGDRegressor(k=12, **settings), (X, y), shuffle=True)
    # A chain for each of four threads at most; one for each candidate would make twelve.
    assert sum(tasks) <= 4
    chunks = chunks_of(*rows(1_200), 12)
    assert_same(model, tp.fit(tp.DCSGDRegressor(k=12, **settings), chunks, shuffle=True))


def test_runs_of_partitions_on_one_worker():
    places = ["a", "a", "b", "a", *["b"] * 20]
    runs = list(engine._neighbours(list(range(24)), places, 16))
    assert [(place, len(some)) for place, some in runs] == [("a", 2), ("b", 1), ("a", 1), ("b", 16), ("b", 4)]
    assert [piece for _, some in runs for piece in some] == list(range(24))


def lazy_frame(pieces=PIECES):
    """A frame whose partitions are made by whoever needs them, as if they were read."""

    def part(number):  # travels by value, so that workers need no test module
        X = np.random.default_rng(number).standard_normal((300, 4))
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(4)]).assign(y=X.sum(axis=1))

    return dd.from_map(part, range(pieces))


@pytest.mark.parametrize("tiny", [engine._TINY, 0], ids=["tiny", "in place"])
def test_tiny_partitions_and_others_give_the_same(client, monkeypatch, tiny):
    X, y = rows(1_800)
    monkeypatch.setattr(engine, "_TINY", tiny)
    for make, settings in ((tp.RVSGDRegressor, {"mean": "catoni"}), (tp.DCSGDRegressor, {})):
        model = tp.fit(make(k=3, **settings, **SETTINGS), arrays(X, y, 18))
        assert_same(model, tp.fit(make(k=3, **settings, **SETTINGS), chunks_of(X, y, 18), shuffle=False))


def test_rows_beyond_the_memory_of_the_cluster_are_loaded_by_tasks(client, monkeypatch):
    data = lazy_frame()
    here = tp.fit(tp.DCSGDRegressor(k=4, **SETTINGS), data)
    monkeypatch.setattr(dask_parts, "_SHARE", 0.0)
    held = []
    held_now = engine.DaskEngine._settled

    def watched(self, submit):
        held.append(len(self.parts.futures))
        return held_now(self, submit)

    monkeypatch.setattr(engine.DaskEngine, "_settled", watched)
    assert_same(tp.fit(tp.DCSGDRegressor(k=4, **SETTINGS), data), here)
    assert held
    assert set(held) == {0}


class TestParts:
    def test_rows_that_the_workers_hold_are_used_as_they_are(self, client):
        X, y = (part.persist() for part in arrays(*rows(600)))
        table = frame(*rows(600)).persist()
        for collections in ((X, y), (table,)):
            known = {future.key for one in collections for future in distributed.futures_of(one)}
            parts = dask_parts.parts_of(client, collections)
            assert {future.key for future in parts.futures} == known

    def test_partitions_that_share_something_are_held(self, client, monkeypatch):
        monkeypatch.setattr(dask_parts, "_SHARE", 0.0)
        X = da.random.default_rng(0).standard_normal((600, 4), chunks=(100, -1))
        assert dask_parts.parts_of(client, (X,)).lazy
        assert not dask_parts.parts_of(client, (X - X.mean(axis=0),)).lazy
        assert not dask_parts.parts_of(client, (X.persist() + 1,)).lazy

    def test_rows_inside_a_graph_do_not_travel_with_every_task(self, client, monkeypatch):
        monkeypatch.setattr(dask_parts, "_SHARE", 0.0)
        heavy = da.from_array(np.ones((20_000, 4)), chunks=(10_000, -1))
        assert not dask_parts.parts_of(client, (heavy,)).lazy
