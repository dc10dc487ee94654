"""Tables as people have them on the command line: how they are read, what is learned, how good it is."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from typer.testing import CliRunner

import tailproof as tp
from tailproof.cli.app import app
from tailproof.cli.output import INTERRUPTED
from tailproof.tables.quality import _error_said

rng = np.random.default_rng(0)
N = 400
SIZE = rng.standard_normal(N)
HEAVY = SIZE + np.random.default_rng(0).standard_t(2.2, N)  # once: tests run in any order
TIME = rng.uniform(0.2, 1.0, N)
TABLE = pa.table(
    {
        "id": np.arange(N),
        "size": SIZE,
        "region": rng.choice(["north", "south"], N),
        "years": TIME,
        "claims": rng.poisson(TIME * np.exp(0.3 * SIZE - 0.5)),
        "cost": np.round(2000 + 300 * SIZE + 20 * rng.standard_normal(N), 2),
        "kind": np.where(SIZE + 0.3 * rng.standard_normal(N) > 0, "yes", "no"),
        "paid": pa.array(np.round(20_000 + 30 * SIZE).astype(np.int32), pa.int32()).cast(pa.date32()),
    }
)


def european(table):
    names = table.column_names
    lines = [";".join(names)]
    for row in table.to_pylist():
        cells = [str(row[name]).replace(".", ",") for name in names]
        lines.append(";".join(cells))
    return "Claims of the year\n\n" + "\n".join(lines)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "data.parquet")
    (tmp_path / "euro.csv").write_bytes(european(TABLE).encode("latin-1"))
    return tmp_path


def invoke(*arguments, **more):
    done = CliRunner().invoke(app, list(arguments), **more)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


LEAVE = ("--drop", "id,claims,kind,paid,years")


def test_a_european_file_makes_the_same_model_and_predictions_read_alike(folder):
    shown = invoke("fit", "euro.csv", "--target", "cost", *LEAVE, "--method", "dc", "--out", "euro.model")
    invoke("fit", "data.parquet", "--target", "cost", *LEAVE, "--method", "dc", "--out", "plain.model")
    assert "size → number" in shown
    assert "region → category" in shown
    assert "id → whole number (left out)" in shown
    assert "if it is an identifier, --drop id" in invoke("diagnose", "euro.csv", "--target", "cost")
    euro, plain = tp.load("euro.model"), tp.load("plain.model")
    assert np.array_equal(euro.estimator.coef_, plain.estimator.coef_)
    assert euro.dialect.decimal == ","
    # In doubt, a new file is read as those that the model learned from.
    (folder / "new.csv").write_text("size;region\n1,234;north\n")
    invoke("predict", "euro.model", "new.csv", "--out", "new.parquet")
    expected = plain.predict(pa.table({"size": [1.234], "region": ["north"]}))["prediction"]
    assert np.array_equal(pq.read_table("new.parquet").column("prediction").to_numpy(), expected)


def test_fit_says_how_good_the_model_is(folder):
    asked = (
        "fit",
        "data.parquet",
        "--target",
        "cost",
        *LEAVE,
        "--method",
        "dc",
        "--out",
        "m",
        "--report",
        "r.html",
    )
    shown = invoke(*asked)
    assert (
        "Explains 99% of the variation on unseen rows (a constant: 0%); no worse than least squares" in shown
    )
    assert "Explains 99% of the variation" in (folder / "r.html").read_text()
    about = json.loads(invoke("info", "m", "--json"))
    assert about["quality"]["r2"] > 0.98
    assert abs(about["quality"]["constant_r2"]) < 0.05
    assert about["quality"]["rows_held_out"] == N / 4
    assert len(about["quality"]["calibration"]) == 10
    assert "held out: r2" in invoke("info", "m")
    shown = invoke("fit", "data.parquet", "--target", "kind", "--drop", "id,cost,paid", "--out", "m")
    assert "of unseen rows, AUC 0.9" in shown


def test_nothing_better_than_a_constant_is_said(folder):
    noise = TABLE.select(["region"]).append_column("y", pa.array(rng.standard_normal(N)))
    pq.write_table(noise, "noise.parquet")
    shown = invoke("fit", "noise.parquet", "--target", "y", "--method", "dc", "--out", "m")
    assert "no better than a constant" in shown


def test_the_constant_that_explains_less_than_nothing_is_explained(folder):
    table = pa.table({"x": rng.standard_normal(60), "y": rng.standard_normal(60)})
    csv.write_csv(table, "few.csv")
    invoke("fit", "few.csv", "--target", "y", "--out", "m", "--report", "r.html")
    constant = json.loads(invoke("info", "m", "--json"))["quality"]["constant_r2"]
    assert constant < 0
    assert "it may explain less than nothing" in Path("r.html").read_text()


def test_a_file_to_test_on(folder):
    pq.write_table(TABLE.slice(0, 300), "train.parquet")
    pq.write_table(TABLE.slice(300), "test.parquet")
    asked = (
        "fit",
        "train.parquet",
        "--target",
        "cost",
        *LEAVE,
        "--method",
        "dc",
        "--out",
        "m",
        "--test",
        "test.parquet",
    )
    assert "On the 100 rows of test.parquet: explains 99% of the variation" in invoke(*asked)
    assert json.loads(invoke(*asked, "--json"))["test"]["rows"] == 100


def test_counts_with_exposure_are_the_usual_model(folder):
    shown = invoke(
        *("fit", "data.parquet", "--target", "claims", "--exposure", "years", "--loss", "poisson"),
        *("--drop", "id,cost,kind,paid,region", "--method", "dc", "--k", "1", "--out", "m"),
    )
    assert shown
    assert "'claims' is a count" in invoke("diagnose", "data.parquet", "--target", "claims")
    model = tp.load("m")
    rates = PoissonRegressor(alpha=0, tol=1e-8).fit(SIZE[:, None], TABLE["claims"].to_numpy() / TIME, TIME)
    assert abs(model.estimator.coef_[0] - rates.coef_[0]) < 0.1
    whole = model.predict(TABLE)["prediction"]
    alone = model.predict(TABLE.drop_columns(["years"]))["prediction"]
    np.testing.assert_allclose(whole, alone * TIME, rtol=1e-12)
    assert "for one unit of exposure" in invoke("predict", "m", write("size", SIZE), "--out", "p.csv")
    logs = TABLE.append_column("log", pa.array(np.log(TIME)))
    pq.write_table(logs, "logs.parquet")
    invoke(
        *("fit", "logs.parquet", "--target", "claims", "--offset", "log", "--loss", "poisson"),
        *("--drop", "id,cost,kind,paid,region,years", "--method", "dc", "--k", "1", "--out", "o"),
    )
    np.testing.assert_allclose(tp.load("o").estimator.coef_, model.estimator.coef_, rtol=1e-6)


def write(name, values):
    csv.write_csv(pa.table({name: values}), "one.csv")
    return "one.csv"


def test_weights_and_powers(folder):
    heavy = np.where(np.arange(N) < 200, 1.0, 0.0)
    pq.write_table(TABLE.append_column("w", pa.array(heavy)), "w.parquet")
    asked = ("--target", "cost", "--method", "dc", "--k", "1", "--drop")
    invoke("fit", "w.parquet", *asked, LEAVE[1], "--weight", "w", "--out", "w")
    pq.write_table(TABLE.slice(0, 200), "half.parquet")
    invoke("fit", "half.parquet", *asked, LEAVE[1], "--out", "half")
    np.testing.assert_allclose(tp.load("w").estimator.coef_, tp.load("half").estimator.coef_, rtol=0.05)
    invoke("fit", "data.parquet", *asked, LEAVE[1], "--power", "1.7", "--out", "p")
    assert (tp.load("p").estimator.loss, tp.load("p").estimator.loss_parameter) == ("tweedie", 1.7)


def test_columns_are_kept_and_predictions_printed(folder):
    invoke("fit", "data.parquet", "--target", "cost", *LEAVE, "--method", "dc", "--out", "m")
    invoke("predict", "m", "data.parquet", "--out", "p.csv", "--keep", "id,region")
    found = csv.read_csv("p.csv")
    assert found.column_names == ["id", "region", "prediction"]
    assert found.column("id").to_pylist() == list(range(N))
    shown = invoke("predict", "m", "-", "--out", "-", input="size;region\n1,5;north\n")
    assert shown.splitlines()[0] == '"prediction"'
    expected = tp.load("m").predict(pa.table({"size": [1.5], "region": ["north"]}))["prediction"][0]
    assert float(shown.splitlines()[1]) == expected


def test_dates_come_back_as_dates_and_negative_costs_are_noticed(folder):
    invoke(
        "fit",
        "data.parquet",
        "--target",
        "paid",
        "--drop",
        "id,claims,kind,cost,years",
        "--out",
        "d",
        "--method",
        "dc",
    )
    invoke("predict", "d", "data.parquet", "--out", "d.parquet")
    found = pq.read_table("d.parquet").column("prediction")
    gap = found.to_numpy().astype("datetime64[us]") - TABLE["paid"].to_numpy().astype("datetime64[us]")
    assert np.median(np.abs(gap)) < np.timedelta64(5, "D")
    assert found.type == pa.date32()  # days, as they were learned
    invoke("fit", "data.parquet", "--target", "cost", *LEAVE, "--method", "dc", "--out", "m")
    assert "1 prediction is below zero, where 'cost' never was" in invoke(
        "predict", "m", write_rows(), "--out", "p.csv"
    )


def test_dates_of_another_form_are_read_as_asked(folder):
    invoke("fit", "data.parquet", "--target", "cost", "--drop", "id,claims,kind,years", "--out", "m")
    days = TABLE["paid"].to_pylist()
    other = TABLE.set_column(
        TABLE.column_names.index("paid"), "paid", pa.array([f"{day:%d/%m/%Y}" for day in days])
    )
    csv.write_csv(other, "other.csv")
    invoke("predict", "m", "data.parquet", "--out", "p.csv")
    invoke("predict", "m", "other.csv", "--date-format", "%d/%m/%Y", "--out", "q.csv")
    assert Path("p.csv").read_text() == Path("q.csv").read_text()


@pytest.mark.filterwarnings("ignore:the candidates had not settled:sklearn.exceptions.ConvergenceWarning")
def test_what_to_do_about_passes_that_ended_early_is_said_in_options(folder):
    sure = pa.table({f"x{j}": rng.standard_normal(2_000) for j in range(20)})
    csv.write_csv(sure.append_column("above", pa.array(sure["x0"].to_numpy() > 0)), "sure.csv")
    done = CliRunner().invoke(app, ["fit", "sure.csv", "--target", "above", "--out", "m"])
    assert "had not settled" in done.stderr
    assert "max_iter" not in done.output
    assert done.output.count("--drop columns that repeat others or give the target away") == 2


def write_rows():
    csv.write_csv(pa.table({"size": [-9.0, 1.0], "region": ["north", "south"]}), "rows.csv")
    return "rows.csv"


def test_details_are_in_the_words_of_the_command_line(folder):
    """Rows are counted from 1, as in the file, and options take the place of classes."""
    rng = np.random.default_rng(0)
    size = rng.standard_normal(300)
    cost = np.where(np.arange(300) < 7, np.nan, 3 * size + rng.standard_normal(300))
    cost[[50, 120]] += 90
    csv.write_csv(pa.table({"size": size, "cost": cost}), "far.csv")
    said = invoke("fit", "far.csv", "--target", "cost", "--out", "m", "--report", "r.html")
    details = next(line for line in said.splitlines() if line.startswith("Details"))
    page = re.sub("</?span>", "", Path("r.html").read_text())  # around options, which stay in one piece
    for words in (details, page):
        assert "counted from 1: 51, 121" in words or "counted from 1: 121, 51" in words
        assert "--contamination 0.25 fits the majority" in words
    assert "RobustRegressor(" not in details


def test_control_c_is_one_line(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tailproof.cli.asked.read_files", stop)
    done = CliRunner().invoke(app, ["diagnose", "data.parquet", "--target", "cost"])
    assert done.exit_code == INTERRUPTED == 130
    assert done.stderr.strip() == "interrupted"


STOPPED_IMPORT = """
import os, signal, sys, time

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            {stop}

    def lost(self):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ImportError("as compiled modules do") from None

sys.meta_path.insert(0, Interrupt())
sys.argv[0] = {program!r}
from tailproof.__main__ import main
main()
"""


def stopped_import(module, program, stop="raise KeyboardInterrupt"):
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    code = STOPPED_IMPORT.format(module=module, program=program, stop=stop)
    return subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )


@pytest.mark.parametrize("stop", ["raise KeyboardInterrupt", "self.lost()"])
@pytest.mark.parametrize("module", ["tailproof.cli.app", "tailproof.core"])
def test_control_c_during_imports_is_one_line(module, stop):
    done = stopped_import(module, "/usr/bin/tailproof", stop)
    assert done.returncode == 130
    assert done.stderr.split() == [b"interrupted"]


def test_control_c_while_another_program_imports_the_package_is_its_own():
    done = stopped_import("tailproof.core", "/usr/bin/analysis")
    assert done.returncode != 130
    assert done.stderr.rstrip().endswith(b"KeyboardInterrupt")


def test_advice_is_a_command_and_a_page(folder):
    heavy = TABLE.select(["size"]).append_column("y", pa.array(HEAVY))
    pq.write_table(heavy, "heavy.parquet")
    shown = invoke("diagnose", "heavy.parquet", "--target", "y", "--report", "tails.html")
    assert "tailproof compare heavy.parquet --target y --report report.html" in shown
    assert "tailproof.DCSGDRegressor" not in shown
    page = (folder / "tails.html").read_text()
    assert "How heavy are the tails?" in page
    assert "tailproof compare heavy.parquet" in page


def test_advice_reads_the_data_as_they_were_read(folder):
    rows = [f"{x:.4f};{y:.4f}".replace(".", ",") for x, y in zip(SIZE, HEAVY, strict=True)]
    (folder / "heavy.csv").write_text("\n".join(["size;y", *rows, "?;1,5"]), encoding="latin-1")
    options = ["--task", "regression", "--delimiter", ";", "--encoding", "latin-1"]
    options += ["--decimal", ",", "--thousands", ".", "--date-format", "%d/%m/%Y", "--na", "?", "--na", "n a"]
    shown = " ".join(invoke("diagnose", "heavy.csv", "--target", "y", *options).split())
    assert f"tailproof fit heavy.csv --target y {shlex.join(options)} --out model" in shown
    assert f"tailproof compare heavy.csv --target y {shlex.join(options)} --report report.html" in shown


def test_advice_names_the_sheet(folder):
    book = pytest.importorskip("openpyxl").Workbook()
    sheet = book.create_sheet("Claims 2024")
    for row in [("size", "paid"), *zip(SIZE.tolist(), HEAVY.tolist(), strict=True)]:
        sheet.append(row)
    book.save("two.xlsx")
    shown = " ".join(invoke("diagnose", "two.xlsx", "--sheet", "Claims 2024", "--target", "paid").split())
    assert "tailproof compare two.xlsx --target paid --sheet 'Claims 2024' --report report.html" in shown


def test_models_are_compared_by_the_loss_that_they_are_fitted_by(folder):
    asked = ("compare", "data.parquet", "--target", "claims", "--task", "regression", "--loss", "poisson")
    shown = invoke(*asked, "--drop", "id,cost,kind,paid,region", "--models", "constant,linear,huber,dc")
    assert "and only measured by this one: huber" in shown
    found = json.loads(
        invoke(*asked, "--drop", "id,cost,kind,paid", "--models", "constant,linear,dc", "--json")
    )
    risks = {row["model"]: row["risk"] for row in found["models"]}
    assert all(np.isfinite(risk) for risk in risks.values())
    assert abs(risks["linear"] - risks["dc"]) < 0.05


def test_nothing_beats_a_constant_is_a_headline(folder):
    noise = pa.table({"x": rng.standard_normal(N), "y": rng.standard_normal(N)})
    pq.write_table(noise, "noise.parquet")
    shown = invoke("compare", "noise.parquet", "--target", "y", "--models", "constant,linear")
    assert "Nothing beats a constant, beyond chance" in shown
    shown = invoke("compare", "data.parquet", "--target", "cost", *LEAVE, "--models", "constant,linear")
    assert "Nothing beats a constant" not in shown


def test_rows_without_a_target_are_counted_where_a_row_is_named(folder):
    """A total below the rows is in the row that the file has, not in that of the rows with a target."""
    lines = [f"{j},{2 * j + j % 3 if j % 4 else 'n/a'}" for j in range(40)]
    (folder / "total.csv").write_text("\n".join(["size,cost", *lines, "Total,99"]))
    done = CliRunner().invoke(app, ["fit", "total.csv", "--target", "cost", "--out", "m"])
    assert "row 41 says 'Total'" in done.stderr


def test_counts_with_an_exposure_are_called_counts(folder):
    asked = (
        "fit",
        "data.parquet",
        "--target",
        "claims",
        "--exposure",
        "years",
        "--drop",
        "id,cost,kind,paid",
    )
    hint = "'claims' is a count: --loss poisson may suit it"
    said = invoke(*asked, "--out", "m")
    assert hint in said
    assert "regression: --exposure is for regressions" in said
    assert hint not in invoke(*asked, "--out", "m", "--loss", "poisson")


def test_classes_that_are_asked_for_are_not_called_counts(folder):
    asked = ("fit", "data.parquet", "--target", "claims", "--drop", "id,cost,kind,paid", "--out", "m")
    assert "poisson" not in invoke(*asked, "--task", "classification")
    assert "'claims' is a count: --loss poisson may suit it" in invoke(*asked, "--task", "regression")


def test_an_error_of_one_day_is_one_day():
    assert [_error_said(error, True) for error in (1.0, 0.5)] == ["1 day", "0.5 days"]


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Parquet files in folders whose names say the day, on which alone the target depends."""
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(1).standard_normal((4, 60, 2))
    for day in range(4):
        Path("hive", f"day={day}").mkdir(parents=True)
        x, error = noise[day].T
        pq.write_table(pa.table({"x": x, "y": 10.0 * day + 0.01 * error}), f"hive/day={day}/a.parquet")
    return tmp_path


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_names_of_folders_are_columns(days, engine):
    said = invoke("fit", "hive", "--target", "y", "--engine", engine, "--out", "m.model")
    assert "day" in said
    model = tp.load("m.model")
    assert [column.name for column in model.encoding.columns] == ["x", "day"]
    for out in ("p.csv", "p.parquet"):
        invoke("predict", "m.model", "hive", "--keep", "day", "--out", out)
        found = csv.read_csv(out) if out == "p.csv" else pq.read_table(out)
        expected = 10 * found["day"].to_numpy()
        np.testing.assert_allclose(found["prediction"].to_numpy(), expected, atol=0.5)


def _weighted(folder):
    """Half of the rows are nonsense, and weigh nothing."""
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal(600), np.repeat([1.0, 0.0], 300)
    y = np.where(weight > 0, 3 * x + 0.1 * rng.standard_normal(600), -50 * x)
    mixed = rng.permutation(600)
    pq.write_table(pa.table({"x": x, "weight": weight, "y": y}).take(mixed), "weighted.parquet")
    return ("fit", "weighted.parquet", "--target", "y", "--weight", "weight", "--out", "m", "--test")


def test_rows_without_weight_have_no_say_in_any_measure(folder):
    found = json.loads(invoke(*_weighted(folder), "weighted.parquet", "--json"))
    assert found["test"]["r2"] > 0.99
    assert found["test"]["median_error"] < 0.15
    assert found["quality"]["median_error"] < 0.15


def test_a_file_to_test_counts_on_is_measured_for_each_unit_of_exposure(folder):
    found = json.loads(
        invoke(
            *("fit", "data.parquet", "--target", "claims", "--exposure", "years", "--loss", "poisson"),
            *("--drop", "id,cost,kind,paid,region", "--out", "m", "--test", "data.parquet", "--json"),
        )
    )["test"]
    rate, time = tp.load("m").estimator.predict(SIZE[:, None]), TIME
    y = TABLE["claims"].to_numpy() / time
    constant = np.full(len(y), np.average(y, weights=time))
    left, whole = (mean_poisson_deviance(y, each, sample_weight=time) for each in (rate, constant))
    assert found["deviance_explained"] == pytest.approx(1 - left / whole, rel=1e-6)


def test_the_deviance_is_that_of_the_power_that_was_asked_for(folder):
    asked = ("fit", "data.parquet", "--target", "claims", "--drop", "id,cost,kind,paid,region", "--out", "m")
    low, high = (
        json.loads(invoke(*asked, "--power", power, "--json"))["quality"] for power in ("1.1", "1.9")
    )
    assert abs(low["constant_deviance"] / high["constant_deviance"] - 1) > 0.05
    refused = CliRunner().invoke(app, [*asked, "--power", "3"])
    assert refused.exit_code == 2
    assert "--power is between 1 and 2" in refused.output
