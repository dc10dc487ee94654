"""A fit that was killed goes on where it was."""

import errno
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tailproof as tp
from forks import Forks
from pieces_data import (
    SETTINGS,
    assert_same,
    chunks_of,
    interrupted,
    rows,
    write_parquet,
)
from tailproof.data import durable, fit, training, verbs
from tailproof.data.readers.files import BadFileError

_FIT = """
import time
import numpy as np, tailproof as tp
from dataclasses import replace
from tailproof.data import level_sums, random_sample, training
from tailproof.estimators.robust_regressor.tuning import DEFAULT
class SmallSample(tp.RobustRegressor):
    _tuning = replace(DEFAULT, compared_rows=500)
def slower(kind, name, seconds):
    step = getattr(kind, name)
    def slow(self, batch):
        time.sleep(seconds)
        return step(self, batch)
    setattr(kind, name, slow)
def work(folder, mark, slow, robust=""):
    slower(training.Training, "deal_batch", float(slow))
    slower(random_sample.RandomSample, "on_batch", float(slow))
    slower(level_sums.LevelSums, "on_batch", float(slow))
    model = SmallSample() if robust else tp.DCSGDRegressor(k=4, max_iter=3)
    tp.fit(model, folder, batch_rows=200, checkpoint=mark, checkpoint_seconds=0.0)
    found = model.coef_ if robust else model.candidates_
    np.save(mark + ".npy", np.append(found.ravel(), model.intercept_))
"""

_THREE_FITS = f"""{_FIT}
import multiprocessing, sys
def told(number):
    try:
        work(*sys.argv[1:])
    except Exception as error:
        return str(error)
    return "done"
with multiprocessing.get_context("fork").Pool(3) as processes:
    print(*processes.map(told, range(3), chunksize=1), sep="\\n")
"""


def kill_twice(fits, folder, mark, robust):
    """Start fits that are slow, and kill each a while after it has written the checkpoint."""
    places = []
    for _ in range(2):
        process = fits.start(folder, mark, 0.05, robust)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and (not mark.exists() or mark.stat().st_mtime_ns in places):
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(process, signal.SIGKILL)
        assert fits.wait() == -signal.SIGKILL
        places.append(mark.stat().st_mtime_ns)


class TestCheckpoint:
    def test_after_a_kill_the_same_command_finds_the_same_result(self, tmp_path):
        folder = tmp_path / "data"
        folder.mkdir()
        write_parquet(folder, chunks_of(*rows(2_400), 3))
        with Forks(_FIT) as fits:
            for robust in ("", "robust"):
                whole, broken = tmp_path / f"whole{robust}", tmp_path / f"broken{robust}"
                fits.start(folder, whole, 0.0, robust)
                assert fits.wait() == 0
                kill_twice(fits, folder, broken, robust)
                fits.start(folder, broken, 0.0, robust)
                assert fits.wait() == 0
                np.testing.assert_array_equal(np.load(f"{whole}.npy"), np.load(f"{broken}.npy"))
                assert not broken.exists()

    def test_a_checkpoint_is_for_one_fit_only(self, tmp_path, monkeypatch):
        paths = write_parquet(tmp_path, chunks_of(*rows(1_000), 2))
        mark = tmp_path / "mark"
        with monkeypatch.context() as patch:
            patch.setattr(fit.RowsInPieces, "intercept_shift", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
        assert mark.exists()
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS | {"k": 4}), paths, checkpoint=mark)
        model = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
        assert_same(model, tp.fit(tp.DCSGDRegressor(**SETTINGS), paths))
        assert not mark.exists()
        with pytest.raises(FileNotFoundError, match="for the checkpoint: make it first"):
            tp.fit(tp.DCSGDRegressor(), paths, checkpoint=tmp_path / "nowhere" / "mark")
        for junk in (b"junk", b"PK\x03\x04 junk", b""):
            mark.write_bytes(junk)
            with pytest.raises(ValueError, match="mark is not a checkpoint: delete it"):
                tp.fit(tp.DCSGDRegressor(), paths, checkpoint=mark)
        with pytest.raises(ValueError, match="needs data in files"):
            tp.fit(tp.DCSGDRegressor(), iter(chunks_of(*rows(100), 2)), checkpoint=mark)


@pytest.fixture
def paths(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return write_parquet(folder, chunks_of(*rows(1_000), 2))


def stop_after_training(paths, mark, monkeypatch, estimator=None, **options):
    with monkeypatch.context() as patch:
        patch.setattr(fit.RowsInPieces, "sizes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tp.fit(estimator or tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark, **options)
    assert mark.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_of_several_processes_with_one_checkpoint_all_but_one_are_refused(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_parquet(folder, chunks_of(*rows(2_400), 3))
    mark = tmp_path / "mark"
    command = [sys.executable, "-c", _THREE_FITS, str(folder), str(mark), "0.15"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    refused = [error for error in done.stdout.splitlines() if error != "done"]
    assert len(refused) < 3
    for error in refused:
        assert "another process fits with the checkpoint" in error
    model = tp.fit(tp.DCSGDRegressor(k=4, max_iter=3), folder, batch_rows=200, checkpoint=tmp_path / "again")
    expected = np.append(model.candidates_.ravel(), model.intercept_)
    np.testing.assert_array_equal(np.load(f"{mark}.npy"), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "mark.npy"]


def test_the_lock_is_released_after_a_fit_and_after_an_error(tmp_path, paths, monkeypatch):
    mark = tmp_path / "mark"
    stop_after_training(paths, mark, monkeypatch)
    lock = durable.locked(tmp_path / ".mark.tailproof-lock", "busy")
    with lock, pytest.raises(durable.BusyError, match="another process fits with the checkpoint"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
    tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


class TestFingerprint:
    @pytest.mark.parametrize(
        "other",
        [
            {"shuffle": True},
            {"shuffle": "disk"},
            {"sample_weight": "x3"},
            {"features": ["x1", "x0", "x2", "x3"]},
        ],
    )
    def test_options_are_part_of_it(self, tmp_path, paths, monkeypatch, other):
        mark = tmp_path / "mark"
        positive = [tmp_path / "data" / f"positive{i}.parquet" for i in range(2)]
        for path, into in zip(paths, positive, strict=True):
            table = pq.read_table(path)
            weights = pc.abs(table["x3"])
            pq.write_table(table.set_column(3, "x3", weights), into)
        stop_after_training(positive, mark, monkeypatch)
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), positive, checkpoint=mark, **other)

    def test_roles_of_columns(self, tmp_path, paths, monkeypatch):
        mark = tmp_path / "mark"
        stop_after_training(paths, mark, monkeypatch, features=["x0", "y"], target="x1")
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, "y", ["x0", "x1"], checkpoint=mark)

    def test_classes(self, tmp_path, monkeypatch):
        mark, labels = tmp_path / "mark", [0, 1, 2]
        paths = write_parquet(tmp_path, chunks_of(*rows(1_000, classes=3), 2))
        classifier = tp.DCSGDClassifier(**SETTINGS)
        stop_after_training(paths, mark, monkeypatch, classifier, classes=labels)
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDClassifier(**SETTINGS), paths, classes=[*labels, 3], checkpoint=mark)

    def test_version(self, tmp_path, paths, monkeypatch):
        mark = tmp_path / "mark"
        stop_after_training(paths, mark, monkeypatch)
        monkeypatch.setattr(tp, "__version__", "0.0.1")
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)

    def test_a_long_start_is_part_of_it_to_the_last_number(self, tmp_path, monkeypatch):
        X, y = rows(400, d=1_100)
        (path,) = write_parquet(tmp_path, [(X, y)])
        mark, start = tmp_path / "mark", np.zeros(1_100)
        settings = SETTINGS | {"k": 1, "max_iter": 1}
        stop_after_training(path, mark, monkeypatch, tp.DCSGDRegressor(**settings, init=(start.copy(), 0.0)))
        start[550] = 1.0
        with pytest.raises(ValueError, match="belongs to another fit"):
            tp.fit(tp.DCSGDRegressor(**settings, init=(start, 0.0)), path, checkpoint=mark)

    def test_a_state_that_cannot_be_resumed_is_refused_at_the_start(self, tmp_path, paths, monkeypatch):
        monkeypatch.setattr(verbs, "fit_in_pieces", interrupted)
        state = np.random.RandomState(0)
        with pytest.raises(ValueError, match=r"cannot be resumed, .*: give a whole number, or None"):
            tp.fit(tp.DCSGDRegressor(k=2, random_state=state), paths, checkpoint=tmp_path / "mark")


@pytest.mark.parametrize("kept_times", [False, True])
def test_a_file_swapped_during_a_fit_is_noticed(tmp_path, paths, monkeypatch, kept_times):
    deal_batch, swapped = training.Training.deal_batch, []

    def swap(self, batch):
        if not swapped:
            swapped.append(True)
            before = paths[1].stat()
            write_parquet(tmp_path, [rows(500, seed=9)])[0].replace(paths[1])
            if kept_times:
                os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))
        return deal_batch(self, batch)

    monkeypatch.setattr(training.Training, "deal_batch", swap)
    with pytest.raises(BadFileError, match=r"part01\.parquet was changed or removed meanwhile"):
        tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)


class TestTroubleWithTheDisk:
    def test_a_folder_that_takes_no_files_is_noticed_at_the_start(self, tmp_path, paths, monkeypatch):
        def refuse(path):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(durable, "create", refuse)
        monkeypatch.setattr(verbs, "fit_in_pieces", interrupted)
        with pytest.raises(OSError, match=r"cannot write the checkpoint mark in .* \(Permission denied\)"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark")

    def test_a_full_disk_for_the_checkpoint_alone_does_not_end_the_fit(self, tmp_path, paths, monkeypatch):
        clean = tp.fit(tp.DCSGDRegressor(**SETTINGS), paths)

        def full(path):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(durable, "replacing", full)
        with pytest.warns(
            UserWarning, match="cannot write the checkpoint .*No space left.* goes on"
        ) as warned:
            model = tp.fit(
                tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark", checkpoint_seconds=0.0
            )
        assert len(warned) == 1
        assert_same(model, clean)

    @pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
    def test_symbolic_links_are_not_followed(self, tmp_path, paths, monkeypatch):
        private, mark = tmp_path / "private", tmp_path / "mark"
        private.write_text("secret")
        for name in ("mark.new", ".mark.tailproof-part"):
            (tmp_path / name).symlink_to(private)
        stop_after_training(paths, mark, monkeypatch)
        stored = tmp_path / "stored"
        mark.rename(stored)
        mark.symlink_to(stored)
        with pytest.raises(OSError, match="is a symbolic link, which is not followed"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
        (tmp_path / ".lock-of-mark").symlink_to(private)
        (tmp_path / ".mark.tailproof-lock").symlink_to(private)
        with pytest.raises(OSError, match="symbolic links"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=mark)
        assert private.read_text() == "secret"

    def test_a_folder_is_no_checkpoint(self, tmp_path, paths):
        with pytest.raises(IsADirectoryError, match="is a folder: give the name of a file"):
            tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path)

    def test_what_a_killed_write_has_left_is_removed(self, tmp_path, paths):
        (tmp_path / ".mark.0123456789abcdef.tailproof-part").write_text("half")
        (tmp_path / ".mark.notes.tailproof-part").write_text("a user's")
        tp.fit(tp.DCSGDRegressor(**SETTINGS), paths, checkpoint=tmp_path / "mark")
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [".mark.notes.tailproof-part", "data"]

    def test_a_write_that_fails_leaves_the_file_before(self, tmp_path):
        path = tmp_path / "state"
        path.write_text("before")
        with pytest.raises(KeyboardInterrupt), durable.replacing(path) as file:
            interrupted(file.write(b"half"))
        assert [p.name for p in tmp_path.iterdir()] == ["state"]
        assert path.read_text() == "before"
