"""A fit that was killed goes on where it was."""

import os
import signal
import time

import numpy as np
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
from tailproof.data import fit

_FIT = """
import time
import numpy as np, tailproof as tp
from tailproof.data import training
step = training.Training.deal_batch
def work(folder, mark, slow):
    def deal_batch(self, batch):
        time.sleep(float(slow))
        return step(self, batch)
    training.Training.deal_batch = deal_batch
    model = tp.fit(tp.DCSGDRegressor(k=4, max_iter=3), folder, batch_rows=200,
                   checkpoint=mark, checkpoint_seconds=0.0)
    np.save(mark + ".npy", np.append(model.candidates_.ravel(), model.intercept_))
"""


class TestCheckpoint:
    def test_after_a_kill_the_same_command_finds_the_same_result(self, tmp_path):
        folder = tmp_path / "data"
        folder.mkdir()
        write_parquet(folder, chunks_of(*rows(2_400), 3))
        whole, broken = tmp_path / "whole", tmp_path / "broken"
        places = []
        with Forks(_FIT) as fits:
            fits.start(folder, whole, 0.0)
            assert fits.wait() == 0
            for _ in range(2):
                process = fits.start(folder, broken, 0.05)
                deadline = time.monotonic() + 300
                while time.monotonic() < deadline and (
                    not broken.exists() or broken.stat().st_mtime_ns in places
                ):
                    time.sleep(0.01)
                time.sleep(0.3)
                os.kill(process, signal.SIGKILL)
                assert fits.wait() == -signal.SIGKILL
                places.append(broken.stat().st_mtime_ns)
            fits.start(folder, broken, 0.0)
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
