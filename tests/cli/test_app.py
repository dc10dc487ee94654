"""Every command on small files, in this process; two of them as processes of their own."""

import contextlib
import html
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import tailproof
from tailproof.cli.app import app
from tailproof.cli.models import ENGINES
from tailproof.core.losses import LOSSES
from tailproof.tables.model import CLI_METHODS

rng = np.random.default_rng(0)
N = 400
SHADES = np.array(["red", "blue", "<b>"])[rng.integers(0, 3, N)]
FREQUENT = str(max(set(SHADES), key=list(SHADES).count))
SIZES = rng.standard_normal(N)
TABLE = pa.table(
    {
        "size": pa.array(SIZES, mask=np.arange(N) % 7 == 0),
        "shade": SHADES,
        "<script>alert(1)</script>": rng.standard_normal(N),
        "cost": 3 * SIZES + 5 * (SHADES == "red") + rng.standard_t(2.5, N),
        "sold": np.where(SIZES + 0.3 * rng.standard_normal(N) > 0, "yes", "no"),
    }
)


def succeed(*arguments, cwd):
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def process(*command, cwd=None):
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, check=False, cwd=cwd
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, and a model that fit wrote with its report."""
    path = tmp_path_factory.mktemp("data")
    pq.write_table(TABLE, path / "data.parquet")
    csv.write_csv(TABLE, path / "data.csv")
    said = succeed(
        *("fit", "data.csv", "--target", "cost", "--drop", "sold", "--out", "m.model", "--report", "m.html"),
        cwd=path,
    ).stdout
    assert "regression: 'cost' is a number" in said
    assert "model: m.model" in said
    return path


def test_demo_prints_a_row_for_every_model_and_writes_a_report(tmp_path):
    done = succeed(
        "demo", "--draws", "2", "--rows", "300", "--columns", "3", "--report", "r.html", cwd=tmp_path
    )
    page = (tmp_path / "r.html").read_text()
    for name in (
        "LinearRegression",
        "SGDRegressor",
        "HuberRegressor",
        "RobustRegressor",
        "DC-SGD",
        "RV-SGDAve",
    ):
        assert name in done.stdout
        assert name in page
    assert "report: r.html" in done.stdout


def test_diagnose(folder):
    found = json.loads(succeed("diagnose", "data.parquet", "--target", "cost", "--json", cwd=folder).stdout)
    assert found["task"] == "regression"
    assert found["verdict"] in tailproof.diagnose.VERDICTS
    assert "size" in found["features"]


def test_predict_takes_raw_rows_in_any_order(folder):
    new = pa.table({"shade": ["red", "violet"], "<script>alert(1)</script>": [0.0, 1.0], "size": [1.0, None]})
    csv.write_csv(new, folder / "new.csv")
    said = succeed("predict", "m.model", "new.csv", "--out", "new.parquet", cwd=folder).stdout
    assert said.splitlines() == [
        "column 'size': 1 missing, filled with the median of the training rows",
        f"column 'shade': 1 never seen by the model, counted as {FREQUENT!r}",
        "2 predictions of 'cost': new.parquet",
    ]
    arguments = ("predict", "m.model", "new.csv", "--out", "again.csv", "--json")
    told = json.loads(succeed(*arguments, cwd=folder).stdout)
    assert told["gaps"][1] == {"name": "shade", "missing": 0, "unknown": 1, "level": FREQUENT, "sure": True}
    found = pq.read_table(folder / "new.parquet").column("prediction").to_numpy()
    assert np.all(np.isfinite(found))
    assert abs(found[0] - 8) < 3
    model = tailproof.load(folder / "m.model")
    assert np.allclose(found, model.predict(new)["prediction"])


def test_fit_and_diagnose_say_what_they_leave_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = TABLE.append_column("same", pa.array(["x"] * N)).append_column(
        "late", pa.array(np.arange(N, dtype=float), mask=np.arange(N) >= N - 3)
    )
    pq.write_table(odd, "odd.parquet")
    asked = ["odd.parquet", "--target", "late"]
    said = CliRunner().invoke(app, ["fit", *asked, "--method", "dc", "--out", "odd.model"]).stdout
    assert "rows without a value of 'late', left out: 3" in said
    assert "left out: same" in said
    assert "Next: tailproof predict odd.model NEW.csv --out predictions.csv" in said
    said = CliRunner().invoke(app, ["diagnose", *asked]).stdout
    assert "rows without a value of 'late', left out: 3" in said
    assert "not shown: --json has them all" in said


def test_fit_says_that_it_is_a_classification(folder):
    arguments = ("--target", "sold", "--drop", "cost", "--out", "c.model", "--json")
    about = json.loads(succeed("fit", "data.parquet", *arguments, cwd=folder).stdout)
    assert about["task"] == "classification"
    assert about["estimator"] == "DCSGDClassifier"
    succeed("predict", "c.model", "data.parquet", "--out", "c.csv", cwd=folder)
    found = csv.read_csv(folder / "c.csv")
    assert found.column_names == ["prediction", "share no", "share yes"]
    right = np.mean(found.column("prediction").to_numpy() == TABLE.column("sold").to_numpy())
    assert right > 0.75


def test_compare(folder):
    arguments = ("--target", "cost", "--models", "constant,linear,dc", "--report", "compare.html", "--json")
    found = json.loads(succeed("compare", "data.parquet", *arguments, cwd=folder).stdout)
    assert {row["model"] for row in found["models"]} == {"constant", "linear", "dc"}
    assert found["best"] != "constant"
    assert "predicts best" in (folder / "compare.html").read_text()


def test_fit_on_dask_finds_about_the_same(folder):
    arguments = ("--target", "cost", "--drop", "sold", "--report", "d.html")
    succeed("fit", "data.parquet", *arguments, "--engine", "dask", "--out", "d.model", cwd=folder)
    far, here = tailproof.load(folder / "d.model"), tailproof.load(folder / "m.model")
    assert isinstance(far.estimator, tailproof.RobustRegressor)
    assert "Dask" in far.estimator.report_.data
    assert far.made["rows"] == TABLE.num_rows
    gap = far.predict(TABLE)["prediction"] - here.predict(TABLE)["prediction"]
    assert np.median(np.abs(gap)) < 1
    assert "as a second look at the data" in (folder / "d.html").read_text()


@pytest.mark.parametrize("method", ["auto", "dc"])
def test_the_page_says_how_to_repeat_it(folder, method):
    table = TABLE.set_column(0, "size", pa.array(np.round(SIZES * 2) % 7))
    csv.write_csv(table, folder / "semi.csv", csv.WriteOptions(delimiter=";"))
    asked = ("--delimiter", ";", "--drop", "sold", "--drop", "shade", "--task", "regression")
    out = ("--method", method, "--seed", "4", "--out", "semi.model", "--report", "semi.html")
    succeed("fit", "semi.csv", "--target", "size", *asked, *out, cwd=folder)
    page = (folder / "semi.html").read_text()
    code = html.unescape(page.split(">Python<")[1].split("<code>")[1].split("</code>")[0])
    shown = {}
    exec(code.replace("'semi.csv'", repr(str(folder / "semi.csv"))), shown)
    saved = tailproof.load(folder / "semi.model")
    assert saved.task == "regression"
    assert isinstance(shown["model"], tailproof.TableRegressor)
    assert np.array_equal(shown["model"].estimator_.coef_, saved.estimator.coef_)


def test_info(folder):
    about = json.loads(succeed("info", "m.model", "--json", cwd=folder).stdout)
    assert about["target"] == "cost"
    assert about["estimator"] == "RobustRegressor"
    assert about["rows"] == N
    assert about["version"] == tailproof.__version__
    assert "sold" not in about["columns"]


def test_version_and_help(tmp_path):
    assert succeed("--version", cwd=tmp_path).stdout.strip() == tailproof.__version__
    done = process("-m", "tailproof", "--help")
    assert done.returncode == 0, done.stderr
    for name in ("demo", "diagnose", "fit", "predict", "compare", "info", "completion"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fit --method ", CLI_METHODS),
        ("fit --engine ", ENGINES),
        ("fit --loss ", LOSSES),
        ("compare --loss zero", ["zero_one"]),
        ("compare --task c", ["classification"]),
        ("di", ["diagnose"]),
    ],
)
def test_a_shell_can_complete(words, offered, monkeypatch, capsys):
    monkeypatch.setenv("_TAILPROOF_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"tailproof {words}")
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
    with pytest.raises(SystemExit):
        app(prog_name="tailproof")
    assert capsys.readouterr().out.split() == list(offered)


def test_a_mistake_is_a_line_and_not_a_traceback(tmp_path):
    usage = CliRunner().invoke(app, ["demo", "--rows", "many"])
    data = process("-m", "tailproof", "info", "none.model", cwd=tmp_path)
    assert (usage.exit_code, data.returncode) == (2, 1)
    assert "--rows" in usage.stderr
    for done in (usage, data):
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1


def test_without_the_extra_the_command_names_it():
    done = process(
        "-c", "import sys; sys.modules['typer'] = None; from tailproof.__main__ import main; main()"
    )
    assert done.returncode == 1
    assert "pip install 'tailproof[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
