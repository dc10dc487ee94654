"""Rows in some order: noticed, shuffled on disk, and fitted as well as if they had come at random."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import tailproof as tp
from forks import Forks
from pieces_data import assert_same, chunks_of, interrupted, rows, table_of, write_parquet
from tailproof.data import durable
from tailproof.data.durable import new_folder, remove_abandoned, temporary_folder
from tailproof.data.first_look import Survey, look_sorted
from tailproof.data.readers.batches import Batch
from tailproof.data.shuffle_on_disk import open_shuffled, write_shuffled

SETTINGS = {"k": 5, "random_state": 7, "max_iter": 2}
NOBODY = np.empty(0, dtype=np.intp)


def by_target(X, y):
    return np.argsort(y)


def by_target_in_every_file(X, y):
    return np.concatenate([some[np.argsort(y[some])] for some in np.array_split(np.arange(len(y)), 6)])


def by_feature(X, y):
    return np.argsort(X[:, 1])


def roughly(X, y):
    """A slow change: neighbours are hardly more alike than others."""
    return np.argsort(
        y + np.random.default_rng(0).normal(0, 2 * np.subtract(*np.percentile(y, [75, 25])), len(y))
    )


ORDERS = [by_target, by_target_in_every_file, by_feature, roughly]


def excess_risk(model, d=4):
    scale = 10.0 ** np.linspace(-2, 2, d)
    return float(np.sum((model.coef_ * scale - 2.0) ** 2) + (model.intercept_ - 3.0) ** 2)


def sorted_chunks(order, n=6_000, pieces=6, seed=0):
    X, y = rows(n, seed=seed)
    some = order(X, y)
    return chunks_of(X[some], y[some], pieces)


def risk_of_files(folder, order, shuffled):
    """Sum of excess risks over three draws of rows that lie in an order."""
    total = 0.0
    for seed in range(3):
        X, y = rows(30_000, seed=seed)
        numbers = order(X, y)
        paths = write_parquet(folder, chunks_of(X[numbers], y[numbers], 6))
        model = tp.fit(tp.DCSGDRegressor(random_state=seed), paths, batch_rows=1_000)
        assert ("shuffled on disk" in model.report_.data) == shuffled
        total += excess_risk(model)
    return total


@pytest.fixture(scope="module")
def risk_at_random(tmp_path_factory):
    return risk_of_files(tmp_path_factory.mktemp("at_random"), lambda X, y: np.arange(len(y)), shuffled=False)


@pytest.mark.parametrize("order", ORDERS)
def test_sorted_files_fit_as_well_as_shuffled_ones(tmp_path, order, risk_at_random):
    # Without mixing the order by target is worse by a factor of 50 and more.
    assert risk_of_files(tmp_path, order, shuffled=True) < 2 * risk_at_random


@pytest.mark.parametrize("make", [tp.RVSGDRegressor, tp.DCSGDClassifier, tp.RVSGDClassifier])
def test_every_estimator(tmp_path, make):
    X, y = rows(9_000, classes=3 if "Classifier" in make.__name__ else 0)
    order = np.argsort(y, kind="stable")
    labels = y if "Regressor" in make.__name__ else np.array(["a", "b", "c"])[y]
    data = write_parquet(tmp_path, chunks_of(X[order], labels[order], 3))
    model = tp.fit(make(random_state=0), data, batch_rows=1_000)
    assert "since they look sorted" in model.report_.data
    assert tp.score(model, data) > make(random_state=0).fit(X, labels).score(X, labels) - 0.02


def test_who_asks_for_it_gets_it_and_nobody_else():
    alike = chunks_of(*rows(6_000), 6)
    assert "shuffled" not in tp.fit(tp.DCSGDRegressor(**SETTINGS), alike).report_.data
    asked = tp.fit(tp.DCSGDRegressor(**SETTINGS), alike, shuffle="disk")
    assert asked.report_.data.endswith("shuffled on disk")
    assert_same(asked, tp.fit(tp.DCSGDRegressor(**SETTINGS, n_jobs=2), iter(alike), shuffle="disk"))
    for shuffle in (True, False):
        with pytest.warns(UserWarning, match=f"look sorted, and shuffle={shuffle}") as caught:
            model = tp.fit(tp.DCSGDRegressor(**SETTINGS), sorted_chunks(by_target), shuffle=shuffle)
        assert caught[0].filename == __file__
        assert "shuffled" not in model.report_.data
        tp.fit(tp.DCSGDRegressor(**SETTINGS), alike, shuffle=shuffle)


def test_no_row_is_lost_and_bad_ones_are_counted(tmp_path):
    X, y = rows(4_000)
    order = np.argsort(y)
    X, y = X[order], y[order]
    X[[7, 3_000], 2] = np.nan
    weights = np.resize([0.0, 1.0, 2.0, 1.0], 4_000)
    paths = []
    for number, some in enumerate(np.array_split(np.arange(4_000), 40)):
        paths.append(tmp_path / f"{number:02d}.parquet")
        pq.write_table(table_of(X[some], y[some], w=weights[some]), paths[-1])
    paths[17].write_bytes(b"PAR1 not really PAR1")
    whole = paths[20].read_bytes()
    paths[20].write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    model = tp.fit(
        tp.DCSGDRegressor(**SETTINGS),
        paths,
        sample_weight="w",
        on_missing="drop",
        on_bad_file="skip",
        batch_rows=500,
    )
    assert "shuffled on disk" in model.report_.data
    assert model.report_.skipped_files == (str(paths[17]), str(paths[20]))
    assert model.report_.dropped_rows == 2
    used = np.ones(4_000, dtype=bool)
    used[[7, 3_000]] = used[1_700:1_800] = used[2_000:2_100] = False
    assert model.report_.block_sizes.sum() == (used & (weights > 0)).sum()


def folders():
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("tailproof-")}


def test_the_folder_is_gone_after_a_fit_and_after_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chunks = sorted_chunks(by_target)
    tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks)
    assert not folders()
    chunks[3][0][500] = np.nan
    with pytest.raises(ValueError, match=r"chunk 3: column 'feature 0' is missing"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks)
    assert not folders()


_ABANDONED = """
import sys, tempfile, time
from tailproof.data.durable import temporary_folder
tempfile.tempdir = sys.argv[1]
with temporary_folder():
    print("at work", flush=True)
    time.sleep(100)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_what_a_killed_fit_leaves_the_next_one_removes_but_not_what_a_living_one_uses(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", _ABANDONED, str(tmp_path)]
    with temporary_folder() as used, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "at work\n"
        tp.fit(tp.DCSGDRegressor(**SETTINGS), sorted_chunks(by_target))
        assert len(folders()) == 2
        process.kill()
        process.wait(30)
        assert len(folders()) == 2
        tp.fit(tp.DCSGDRegressor(**SETTINGS), sorted_chunks(by_target))
        assert folders() == {used.name}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_no_other_process_takes_a_folder_for_abandoned_while_its_own_deletes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    there, unlink = [], Path.unlink

    def watched(path, missing_ok=False):
        remove_abandoned(tmp_path)  # as another process would
        there.append(path.exists())
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    with temporary_folder() as folder:
        (folder / "0.rows").touch()
    assert there == [True, True]
    assert not folders()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
@pytest.mark.parametrize("moment", ["before the lock", "with the lock of another"])
def test_a_folder_that_another_process_takes_for_abandoned_is_left_to_it(tmp_path, monkeypatch, moment):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mkdir, made = Path.mkdir, []

    def watched(path, mode=0o777):
        mkdir(path, mode)
        made.append(path)
        if len(made) == 1 and moment == "before the lock":
            remove_abandoned(tmp_path)
        elif len(made) == 1:
            held.enter_context(durable._lock_of(path, without_locks=False))

    monkeypatch.setattr(Path, "mkdir", watched)
    with ExitStack() as held, temporary_folder() as folder:
        assert made == [made[0], folder]
        assert durable.is_own(folder)
    remove_abandoned(tmp_path)
    assert not folders()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_folders_of_others_stay(tmp_path):
    token = "0123456789abcdef" * 2
    for name in ("tailproof-results", f"tailproof-{token}"):  # a user's, with a file named lock
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").write_text("mine")
    new_folder(tmp_path / "tailproof-notes")  # a copy that was renamed
    (tmp_path / "tailproof-notes").rename(tmp_path / f"tailproof-{token[::-1]}")
    (tmp_path / "tailproof-demo.html").touch()
    abandoned = tmp_path / f"tailproof-{'a' * 32}"
    new_folder(abandoned)
    (tmp_path / f"tailproof-{'b' * 32}").symlink_to(abandoned)
    before = {path for path in tmp_path.rglob("*") if abandoned not in (path, path.parent)}
    remove_abandoned(tmp_path)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_on_a_disk_without_locks_nothing_is_taken_for_abandoned(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(durable.fcntl, "flock", none)
    with temporary_folder() as folder:
        remove_abandoned(tmp_path)
        assert durable.is_own(folder)
    assert not folders()


def test_a_file_that_is_missing_inside_an_iterator_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken():
        yield sorted_chunks(by_target)[0]
        raise FileNotFoundError("there is no part 1")

    with pytest.raises(FileNotFoundError, match="there is no part 1"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), broken())
    assert not folders()


@pytest.mark.parametrize("state", ["no record", "an empty record"])
def test_a_folder_whose_maker_was_killed_before_its_record(tmp_path, state):
    left, rows_folder = tmp_path / f"tailproof-{'a' * 32}", tmp_path / "mark.rows-0"
    for folder in (left, rows_folder):
        folder.mkdir()
        if state == "an empty record":
            (folder / "tailproof-record.json").touch()
    remove_abandoned(tmp_path)
    assert not left.exists() or sys.platform == "win32"
    durable.fresh_folder(rows_folder, "rows")
    assert durable.is_own(rows_folder)


def test_a_disk_that_takes_no_record_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(path):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "create", full)
    with pytest.raises(OSError, match=r"the disk of .* is full, .*: set TMPDIR to a larger one"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), iter(sorted_chunks(by_target)))
    assert not folders()


def test_a_foreign_file_in_a_folder_of_ours_stays(tmp_path):
    folder = tmp_path / "ours"
    new_folder(folder)
    for name in ("0.rows", "index.json", "notes.txt"):
        (folder / name).write_text("x")
    assert not durable.remove_own(folder)
    assert (folder / "notes.txt").exists()
    assert not (folder / "0.rows").exists()
    (folder / "notes.txt").unlink()
    assert durable.remove_own(folder)
    assert not folder.exists()


def test_sorted_rows_without_room_are_refused(monkeypatch, tmp_path):
    chunks = sorted_chunks(by_target)
    usage = namedtuple("usage", "total used free")(0, 0, 1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    with pytest.raises(OSError, match=r"look sorted .* GB are needed .*: set TMPDIR .* shuffle=True"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks)
    with pytest.raises(OSError, match="set TMPDIR"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks, shuffle="disk")
    paths = write_parquet(tmp_path, chunks)
    with pytest.raises(OSError, match="give a checkpoint in a folder on a larger disk"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark")
    with pytest.warns(UserWarning, match="look sorted"):
        assert tp.fit(tp.DCSGDRegressor(**SETTINGS), chunks, shuffle=True).report_.k == SETTINGS["k"]


@pytest.mark.parametrize("place", ["temporary", "checkpoint"])
def test_a_disk_that_fills_up_while_rows_are_shuffled_leaves_nothing(monkeypatch, tmp_path, place):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chunks = sorted_chunks(by_target)
    data = chunks if place == "temporary" else write_parquet(tmp_path, chunks)
    more = {} if place == "temporary" else {"checkpoint": tmp_path / "mark"}
    before, opened = set(tmp_path.iterdir()), []

    def full(path):
        opened.append(path)
        if len(opened) == 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return append_to(path)

    with monkeypatch.context() as patch:
        append_to = durable.append_to
        patch.setattr(durable, "append_to", full)
        with pytest.raises(OSError, match=r"the disk of .* is full: .* larger disk"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), data, batch_rows=500, **more)
    assert set(tmp_path.iterdir()) == before
    tp.fit(tp.DCSGDRegressor(**SETTINGS), data, batch_rows=500, **more)
    assert set(tmp_path.iterdir()) == before


def test_what_cannot_be_mixed():
    X, y = rows(600)
    with pytest.raises(ValueError, match="sparse chunks cannot be shuffled"):
        tp.fit(tp.DCSGDRegressor(k=2), [(sparse.csr_array(X), y)], shuffle="disk")
    with pytest.raises(ValueError, match="shuffle must be True, False or 'disk'; got 'sort'"):
        tp.fit(tp.DCSGDRegressor(k=2), [(X, y)], shuffle="sort")
    dask_array = type("Array", (), {"__module__": "dask.array.core"})()
    with pytest.raises(ValueError, match="'disk' is for files and chunks; Dask data take True or False"):
        tp.fit(tp.DCSGDRegressor(k=2), dask_array, shuffle="disk")


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    files=st.integers(1, 9),
    seed=st.integers(0, 10**6),
)
def test_every_row_is_in_one_file_once(tmp_path_factory, sizes, files, seed):
    sizes = [*sizes, 5]
    folder = tmp_path_factory.mktemp("shuffled") / "rows"
    new_folder(folder)
    starts = np.cumsum([0, *sizes])

    def batches():
        for number, n in enumerate(sizes):
            y = starts[number] + np.arange(n, dtype=float)
            missing = np.arange(min(n, 1))  # the first row of each is no good
            yield Batch(number, 0, np.column_stack([y, -y]), y, np.empty(0), missing, missing.size)

    pieces = write_shuffled(batches(), folder, files, seed, list, keep=True)
    found = [batch for piece in range(len(pieces)) for batch in pieces.batches(piece)]
    together = np.concatenate([batch.y for batch in found])
    assert sorted(together) == sorted(set(range(starts[-1])) - set(starts[:-1][np.array(sizes) > 0]))
    for piece, batch in enumerate(found):
        np.testing.assert_array_equal(batch.X, np.column_stack([batch.y, -batch.y]))
        (first,) = pieces.first(piece, 3)
        np.testing.assert_array_equal(first.y, batch.y[:3])
    assert sum(batch.dropped for batch in found) == sum(n > 0 for n in sizes)
    assert open_shuffled(folder) == pieces


def as_link(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


DAMAGES = {
    "shortened": lambda folder: os.truncate(folder / "1.rows", 32),
    "changed": lambda folder: (folder / "1.rows").write_bytes(bytes((folder / "1.rows").stat().st_size)),
    "removed": lambda folder: (folder / "1.rows").unlink(),
    "index empty": lambda folder: (folder / "index.json").write_text(""),
    "index halved": lambda folder: os.truncate(
        folder / "index.json", (folder / "index.json").stat().st_size // 2
    ),
    "index edited": lambda folder: (folder / "index.json").write_text(
        (folder / "index.json").read_text().replace('"dropped": 0', '"dropped": 1')
    ),
    "index a link": lambda folder: as_link(folder / "index.json"),
    "record gone": lambda folder: (folder / "tailproof-record.json").unlink(),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_damaged_rows_are_not_taken_for_whole(tmp_path, damage):
    folder = tmp_path / "rows"
    new_folder(folder)
    X, y = rows(200)
    batches = [Batch(0, 0, X, y, np.empty(0), NOBODY)]
    write_shuffled(batches, folder, 3, 0, list, keep=True)
    assert open_shuffled(folder) is not None
    DAMAGES[damage](folder)
    assert open_shuffled(folder) is None


@pytest.mark.parametrize("damage", ["shortened", "changed", "index empty"])
def test_damaged_rows_beside_a_checkpoint_are_shuffled_again(tmp_path, monkeypatch, damage):
    paths = write_parquet(tmp_path, sorted_chunks(by_target))
    settings = {"batch_rows": 500, "checkpoint": tmp_path / "mark"}
    clean = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, batch_rows=500)
    with monkeypatch.context() as patch:
        patch.setattr("tailproof.data.fit.RowsInPieces.sizes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, **settings)
    (folder,) = tmp_path.glob("mark.rows-*")
    DAMAGES[damage](folder)
    assert_same(clean, tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, **settings))
    assert not list(tmp_path.glob("*mark*"))


@pytest.mark.skipif(sys.platform == "win32", reason="modes are of POSIX")
@pytest.mark.parametrize("form", ["iterator", "checkpoint"])
def test_copies_of_rows_are_private(tmp_path, monkeypatch, form):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = {}

    def look(*args):
        files = [path for path in tmp_path.rglob("*") if path.suffix != ".parquet"]
        modes.update({path.name: stat.S_IMODE(path.stat().st_mode) for path in files})
        raise KeyboardInterrupt

    chunks = sorted_chunks(by_target)
    data, more = iter(chunks), {}
    if form == "checkpoint":
        data, more = write_parquet(tmp_path, chunks), {"checkpoint": tmp_path / "mark"}
    monkeypatch.setattr("tailproof.data.fit.RowsInPieces.sizes", look)
    with pytest.raises(KeyboardInterrupt):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), data, **more)
    assert len(modes) > 4
    assert not [name for name, mode in modes.items() if mode & 0o077]


def test_a_foreign_folder_beside_the_checkpoint_is_not_touched(tmp_path, monkeypatch):
    paths = write_parquet(tmp_path, sorted_chunks(by_target))
    old = tmp_path / "mark.rows"
    old.mkdir()
    (old / "thesis.txt").write_text("all my work")
    tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark")
    with monkeypatch.context() as patch:
        patch.setattr("tailproof.data.fit.RowsInPieces.sizes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark")
    (folder,) = tmp_path.glob("mark.rows-*")
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "thesis.txt").write_text("all my work")
    with pytest.raises(FileExistsError, match="holds files that tailproof has not written: move it away"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark")
    assert (folder / "thesis.txt").exists()
    assert (old / "thesis.txt").exists()


def seen_of(X, y, pieces=5):
    survey = Survey(10, parts=8)
    parts = chunks_of(X, y, pieces)
    return [survey.over_piece([Batch(i, 0, X, y, np.empty(0), NOBODY)]) for i, (X, y) in enumerate(parts)]


@pytest.mark.parametrize("seed", range(20))
def test_chance_does_not_look_like_an_order(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([10, 200, 5_000]))
    heavy = rng.standard_t(1.2, n) * 1e6
    rare = (rng.random(n) < 0.002).astype(float)
    X = np.column_stack([heavy, rare, np.full(n, 0.1), 1e9 + rng.standard_normal(n)])
    assert not look_sorted(seen_of(X, rng.lognormal(0, 3, n)))
    assert not look_sorted(seen_of(X[:3], np.ones(3), 1))


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_seen(order):
    X, y = rows(12_000)
    some = order(X, y)
    assert look_sorted(seen_of(X[some], y[some]))


@pytest.mark.parametrize("form", ["chunks", "files"])
def test_a_slow_change_of_a_feature_inside_a_piece_is_seen(tmp_path, form):
    rng = np.random.default_rng(0)
    n = 20_000
    X, y = rng.standard_normal((n, 4)), rng.standard_t(3, n)
    settings = {"batch_rows": 1_000}

    def mixed_on_disk():
        data = [(X, y)] if form == "chunks" else write_parquet(tmp_path, [(X, y)])
        return "shuffled on disk" in tp.fit(tp.DCSGDRegressor(**SETTINGS), data, **settings).report_.data

    assert not mixed_on_disk()
    X[:, 2] += np.linspace(-1, 1, n)  # in the first rows it is nothing
    assert mixed_on_disk()


_FIT = """
import time
import numpy as np, tailproof as tp
from tailproof.data import shuffle_on_disk, training
def slowly(function, seconds):
    def slowed(*args):
        time.sleep(seconds)
        return function(*args)
    return slowed
def work(folder, mark, slow):
    training.Training.deal_batch = slowly(training.Training.deal_batch, float(slow))
    shuffle_on_disk._scatter = slowly(shuffle_on_disk._scatter, float(slow))
    model = tp.fit(tp.DCSGDRegressor(k=4, max_iter=3), folder, batch_rows=200, checkpoint=mark,
                   checkpoint_seconds=0.0)
    assert "shuffled on disk" in model.report_.data
    np.save(mark + ".npy", np.append(model.candidates_.ravel(), model.intercept_))
"""


def test_after_a_kill_in_the_middle_of_mixing_or_of_a_pass(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_parquet(folder, sorted_chunks(by_target, n=2_400, pieces=3))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with Forks(_FIT) as fits:
        fits.start(folder, whole, 0.0)
        assert fits.wait() == 0
        for begun in ("broken.rows-*", "broken"):
            process = fits.start(folder, broken, 0.1)
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline and not list(tmp_path.glob(begun)):
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(process, signal.SIGKILL)
            assert fits.wait() == -signal.SIGKILL
            (folder_of_rows,) = tmp_path.glob("broken.rows-*")
            index = folder_of_rows / "index.json"
            assert index.exists() == (begun == "broken")
        written = index.stat().st_mtime_ns
        assert len(list(folder_of_rows.glob("*.rows"))) == 12
        fits.start(folder, broken, 0.05)
        time.sleep(0.2)
        assert index.stat().st_mtime_ns == written
        assert fits.wait() == 0
    np.testing.assert_array_equal(np.load(f"{whole}.npy"), np.load(f"{broken}.npy"))
    assert not list(tmp_path.glob("*broken")) + list(tmp_path.glob("*broken.rows*"))


# Not ru_maxrss, which counts what the parent held when it started the process.
_PEAK = """
import tailproof as tp
def work(path, out):
    model = tp.fit(tp.DCSGDRegressor(k=4, max_iter=1, random_state=0), path, batch_rows=10_000)
    assert "shuffled on disk" in model.report_.data
    (peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    open(out, "w").write(peak)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    with Forks(_PEAK) as fits:
        for n in (100_000, 400_000):
            X, y = rows(n, d=20)
            order = np.argsort(y)
            path = tmp_path / f"{n}.parquet"
            # One row group: the whole file is one piece.
            pq.write_table(table_of(X[order], y[order]), path, row_group_size=n, use_dictionary=False)
            fits.start(path, tmp_path / "peak")
            assert fits.wait() == 0
            peaks.append(int((tmp_path / "peak").read_text()) / 1024)
    # Four times the rows: 50 MB more in the file.
    assert peaks[1] - peaks[0] < 28
