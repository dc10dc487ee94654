"""Every command on small files, in this process; two of them as processes of their own."""

import contextlib
import html
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import tailproof
from tailproof.cli import clusters, large_files
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


class TestLargeFiles:
    """Files are large where their numbers take more than a share of the memory, which is none here."""

    ARGUMENTS = ("--target", "cost", "--out", "m.model")

    @pytest.fixture
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(large_files, "SHARE", 0.0)
        monkeypatch.setattr(large_files, "LEAST", 0)
        monkeypatch.setattr(clusters, "SAMPLE", 300)
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2_000, 2))
        columns = {"a": X[:, 0], "b": X[:, 1], "cost": np.exp(X[:, 0]) + rng.lognormal(0, 2.5, 2_000)}
        pq.write_table(pa.table(columns), tmp_path / "data.parquet", row_group_size=400)
        return tmp_path

    def fitted(self, place, *more):
        said = succeed("fit", "data.parquet", *self.ARGUMENTS, *more, cwd=place).stdout
        return " ".join(said.split()), tailproof.load(place / "m.model")

    def test_they_are_read_in_pieces(self, place, monkeypatch):
        said, model = self.fitted(place, "--report", "m.html")
        assert "2,000 rows were read in pieces; columns and measures are by a sample of 300." in said
        assert model.made["rows"] == 2_000
        assert said.count("a → number") == 1
        assert "read_table" not in (place / "m.html").read_text()
        rows = [
            int(row.replace(",", "")) for row in re.findall(r"[\d,]*\d", said.split("counted from 1:")[1])
        ]
        assert max(rows[:5]) > 300  # counted among all rows, of which the sample is a few
        monkeypatch.setattr(large_files, "SHARE", 1e9)
        said, whole = self.fitted(place)
        assert "in pieces" not in said
        np.testing.assert_array_equal(model.estimator.coef_, whole.estimator.coef_)

    def test_the_model_is_that_of_dask(self, place):
        _, here = self.fitted(place)
        _, there = self.fitted(place, "--engine", "dask")
        np.testing.assert_allclose(here.estimator.coef_, there.estimator.coef_, rtol=0, atol=1e-10)
        assert here.made["details"] == there.made["details"]

    @pytest.mark.parametrize("what", ["missing", "NaN", "text"])
    def test_what_all_rows_tell_how_to_encode_is_read_as_a_whole(self, place, what):
        table = pq.read_table(place / "data.parquet")
        b, last = table["b"].to_numpy(), np.arange(2_000) == 1_999
        columns = {"missing": pa.array(b, mask=last), "NaN": np.where(last, np.nan, b)}
        columns["text"] = pa.array(np.where(b > 0, "high", "low"))
        pq.write_table(table.set_column(1, "b", pa.array(columns[what])), place / "data.parquet")
        said, model = self.fitted(place)
        assert "in pieces" not in said
        assert said.count("a → number") == 1
        assert model.made["rows"] == 2_000

    @pytest.mark.parametrize("more", [("--method", "dc"), ("--loss", "gamma"), ("--rows", "rows.csv")])
    def test_what_needs_all_rows_at_once_has_them(self, place, more):
        said, _ = self.fitted(place, *more)
        assert "in pieces" not in said

    def test_the_memory_that_is_free_is_known(self):
        assert 2**20 < large_files.free_memory() <= 2**60
        assert not large_files.are_large([])


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
