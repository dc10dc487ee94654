"""Predictions for Parquet files a piece at a time are those for the whole table."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tailproof as tp
from tailproof.cli.app import app
from tailproof.tables import pieces
from tailproof.tables.model import fit_table, prepare

rng = np.random.default_rng(0)
N = 1_000
SIZE = rng.standard_normal(N)
TABLE = pa.table(
    {
        "id": np.arange(N),
        "size": pa.array([None if j % 50 == 3 else size for j, size in enumerate(SIZE)]),
        "hue": np.array(["red", "blue", "green"])[rng.integers(0, 3, N)],
        "money": [f"${1000 + j:,}" for j in range(N)],
        "cost": np.abs(3 * SIZE + rng.standard_normal(N)),
        "label": np.where(SIZE + rng.standard_normal(N) > 0, "yes", "no"),
    }
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files of several row groups, and pieces that fit neither."""
    monkeypatch.setattr(pieces, "PIECE", 64)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, part in zip(paths, (TABLE.slice(0, 333), TABLE.slice(333)), strict=True):
        pq.write_table(part, path, row_group_size=100)
    return paths


@pytest.mark.parametrize("target", ["cost", "label"])
def test_pieces_and_the_whole_are_the_same(files, target, tmp_path):
    left = {"cost", "label", "money", "id"} - {target}
    model = fit_table(prepare(TABLE, target, leave_out=left), "dc", {"random_state": 0})
    assert pieces.can_go_in_pieces(model, files)
    found = pieces.predict_in_pieces(model, files, tmp_path / "out.parquet", ["id"])
    written, whole = pq.read_table(tmp_path / "out.parquet"), model.predict(TABLE)
    assert written.column_names == found.columns == ["id", *whole]
    assert written.column("id").to_pylist() == list(range(N))
    for name, values in whole.items():
        np.testing.assert_array_equal(written.column(name).to_numpy(zero_copy_only=False), values)
    out, other = tmp_path / "out.parquet", tmp_path / "other"
    other.touch()
    assert out.stat().st_mode == other.stat().st_mode  # whoever may read one may read the other
    assert found.gaps == model.encoding.gaps(TABLE)
    assert found.rows == N
    assert found.below == (int(np.sum(whole["prediction"] < 0)) if target == "cost" else 0)


def test_text_that_is_a_number_is_read_whole(files):
    rows = prepare(TABLE.set_column(3, "money", pa.array(np.arange(N) + 1000.0)), "cost", leave_out=["label"])
    assert not pieces.can_go_in_pieces(fit_table(rows, "dc", {"random_state": 0, "k": 2}), files)


def test_files_of_other_columns_are_read_whole(files, tmp_path):
    model = fit_table(prepare(TABLE, "cost", leave_out=["label", "money"]), "dc", {"random_state": 0, "k": 2})
    pq.write_table(TABLE.set_column(0, "id", pa.array(np.arange(N) * 1.0)), tmp_path / "c.parquet")
    assert not pieces.can_go_in_pieces(model, [files[0], tmp_path / "c.parquet"])


def test_the_command_writes_the_same_both_ways(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = prepare(TABLE, "cost", leave_out=["label", "money", "id"])
    tp.save(fit_table(rows, "dc", {"random_state": 0}), "m")
    said = []
    for whole in (False, True):
        if whole:
            monkeypatch.setattr("tailproof.cli.model_commands.can_go_in_pieces", lambda *_: False)
        asked = ["predict", "m", "a.parquet", "b.parquet", "--keep", "id", "--out", f"{whole}.parquet"]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        said.append(done.output.replace(f"{whole}.parquet", "out"))
    assert said[0] == said[1]
    assert pq.read_table("False.parquet").equals(pq.read_table("True.parquet"))


def test_a_column_that_is_not_there_leaves_nothing_behind(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tp.save(fit_table(prepare(TABLE, "cost", leave_out=["label", "money"]), "dc", {"k": 2}), "m")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = CliRunner().invoke(app, ["predict", "m", "a.parquet", "--keep", "none", "--out", "out.parquet"])
    assert done.exit_code == 1
    assert "there is no column 'none'" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == before
