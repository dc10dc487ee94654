"""Names and values from strangers: they stay text in terminals, spreadsheets and shells."""

import csv
import html
import os
import random
import shlex
import stat
import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tailproof as tp
from model_fuzz import mutated
from tailproof.cli.app import app
from tailproof.tables.model import fit_table, prepare

rng = np.random.default_rng(0)
N = 80
TABLE = pa.table(
    {
        "size": rng.standard_normal(N),
        "\x1b[31mred": rng.standard_normal(N),
        "cost": rng.standard_normal(N),
        "label": rng.choice(["=1+1", "+cmd", "-1", "@sum", "plain"], N),
    }
)
pytestmark = pytest.mark.filterwarnings(
    "ignore:the candidates had not settled:sklearn.exceptions.ConvergenceWarning"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "data.parquet")
    return tmp_path


def invoke(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_cells_that_look_like_formulas_are_text(folder):
    tp.save(fit_table(prepare(TABLE, "label"), "dc", {"random_state": 0, "k": 2}), "m")
    invoke("predict", "m", "data.parquet", "--out", "out.csv")
    with open("out.csv", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert {"'=1+1", "'+cmd", "'@sum", "plain", "-1"} & set(cells)
    invoke("predict", "m", "data.parquet", "--keep", "label", "--out", "kept.csv")
    with open("kept.csv", newline="") as file:
        kept = [row[0] for row in csv.reader(file)]
    assert not [cell for cell in kept if cell.startswith(("=", "+", "@"))]
    assert "'=1+1" in kept
    invoke("predict", "m", "data.parquet", "--out", "out.parquet")
    again = set(pq.read_table("out.parquet").column("prediction").to_pylist())
    assert again <= set(TABLE.column("label").to_pylist())


def test_escape_characters_do_not_reach_the_terminal(folder):
    model = fit_table(
        prepare(TABLE, "cost"), "dc", {"random_state": 0, "k": 2}, {"command": "a\x1b]0;title\x07"}
    )
    report = replace(model.estimator.report_, why_k="because \x1b[2J of \x9b31m this")
    model.estimator.report_ = report
    tp.save(model, "m")
    for arguments in (("info", "m"), ("diagnose", "data.parquet", "--target", "cost")):
        shown = invoke(*arguments)
        assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert "\\x1b[31mred" in invoke("info", "m")
    done = CliRunner().invoke(app, ["info", "\x1b[31mnothing"])
    assert "\x1b" not in done.output
    assert "\\x1b[31mnothing" in done.output


def test_file_names_are_quoted_in_the_commands_of_a_report(folder, monkeypatch):
    name = "a model; rm -rf $HOME.model"
    asked = [
        "fit",
        "data.parquet",
        "--target",
        "cost",
        "--method",
        "dc",
        "--out",
        name,
        "--report",
        "r --html.html",
    ]
    monkeypatch.setattr("sys.argv", ["tailproof", *asked])
    invoke(*asked)
    page = html.unescape((folder / "r --html.html").read_text())
    shell, predict = (
        page.split(f">{title}<")[1].split("<code>")[1].split("</code>")[0] for title in ("Shell", "Predict")
    )
    assert shlex.split(predict)[:3] == ["tailproof", "predict", name]
    assert shlex.split(shell.replace("\\\n", " ")) == ["tailproof", *asked]


def test_the_demo_writes_to_a_folder_of_its_own(folder, monkeypatch):
    shared = folder / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    (folder / "private").write_text("secret")
    os.symlink(folder / "private", shared / "tailproof-demo.html")
    shown = invoke("demo", "--draws", "2", "--rows", "200", "--columns", "2")
    assert (folder / "private").read_text() == "secret"
    (made,) = [path for path in shared.iterdir() if path.is_dir()]
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert str(made / "report.html") in shown.replace("\n", "")
    assert (made / "report.html").is_file()


@pytest.mark.filterwarnings("ignore")  # numbers that were changed may overflow
def test_changed_model_files_are_never_a_traceback(folder):
    tp.save(fit_table(prepare(TABLE, "cost"), "dc", {"random_state": 0, "k": 2}), "m")
    content, chance = (folder / "m").read_bytes(), random.Random(3)
    refused = 0
    for number in range(12):
        (folder / "changed").write_bytes(mutated(content, chance))
        for asked in (["info", "changed"], ["predict", "changed", "data.parquet", "--out", "out.csv"]):
            done = CliRunner().invoke(app, asked)
            assert isinstance(done.exception, SystemExit | None), (number, asked, done.exception)
            refused += done.exit_code != 0
    assert refused > 8
