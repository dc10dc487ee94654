"""Workbooks on the command line, and names of columns with commas in an option."""

import datetime as dt
import html
import re
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import tailproof as tp
from tailproof.cli.app import app
from tailproof.tables import prepare
from tailproof.tables.model import fit_table

rng = np.random.default_rng(0)
N = 80
SIZE = np.round(rng.standard_normal(N), 3)
COST = np.round(100 + 10 * SIZE + rng.standard_normal(N), 2)
AREA = rng.choice(["a", "b"], N)
DAYS = [dt.datetime(2024, 1, 1) + dt.timedelta(days=j) for j in range(N)]


def invoke(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def workbook(*others):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Claims"
    sheet.append(["size", "area", "paid", "cost"])
    for row in zip(SIZE.tolist(), AREA.tolist(), DAYS, COST.tolist(), strict=True):
        sheet.append(row)
    for name in others:
        book.create_sheet(name)
    book.save("claims.xlsx")
    return "claims.xlsx", "--target", "cost"


def test_a_model_from_a_workbook_reads_new_files_as_they_are_written():
    """Numbers of a workbook have no decimal mark: that of a new file is found in it."""
    invoke("fit", *workbook(), "--drop", "paid", "--out", "m")
    csv.write_csv(pa.table({"size": SIZE, "area": AREA}), "points.csv")
    rows = [f"{str(size).replace('.', ',')};{area}" for size, area in zip(SIZE, AREA, strict=True)]
    Path("commas.csv").write_text("\n".join(["size;area", *rows]))
    assert tp.load("m").dialect.decimal is None
    assert np.array_equal(tp.predict(tp.load("m"), "commas.csv"), tp.predict(tp.load("m"), "points.csv"))
    done = invoke("predict", "m", "commas.csv", "--out", "p.csv")
    assert "decimal mark" not in done.output
    assert np.array_equal(
        csv.read_csv("p.csv")["prediction"].to_numpy(), tp.predict(tp.load("m"), "points.csv")
    )


def test_a_model_of_whole_numbers_reads_decimal_commas():
    csv.write_csv(pa.table({"size": np.arange(60), "cost": 3 * np.arange(60) % 17}), "whole.csv")
    invoke("fit", "whole.csv", "--target", "cost", "--out", "m")
    Path("commas.csv").write_text("size;other\n1,5;2\n2,5;3\n")
    expected = tp.load("m").predict(pa.table({"size": [1.5, 2.5]}))["prediction"]
    assert np.array_equal(tp.predict(tp.load("m"), "commas.csv"), expected)


def test_the_order_of_dates_is_that_of_new_files_where_a_model_has_seen_none():
    table = pa.table({"day": pa.array(DAYS, pa.timestamp("us")), "cost": COST})
    tp.save(fit_table(prepare(table, "cost"), "dc", {"random_state": 0}), "m")
    Path("new.csv").write_text("day\n14/02/2024\n03/02/2024\n")
    new = pa.table({"day": pa.array([DAYS[44], DAYS[33]], pa.timestamp("us"))})
    assert np.array_equal(tp.predict(tp.load("m"), "new.csv"), tp.load("m").predict(new)["prediction"])


@pytest.mark.parametrize("verb", ["fit", "diagnose", "compare"])
def test_sheets_that_are_not_read_are_named(verb):
    asked = (verb, *workbook("Notes", "Old claims"), *(("--out", "m") if verb == "fit" else ()))
    said = "claims.xlsx: sheet 'Claims' is read, and not 'Notes', 'Old claims': --sheet names another"
    assert said in invoke(*asked).stdout
    assert "--sheet" not in invoke(*asked, "--sheet", "Claims").stdout.split("tailproof")[0]
    if verb == "fit":
        assert said not in invoke("predict", "m", "claims.xlsx", "--out", "p.csv").output


def test_sheets_that_an_experiment_leaves_out_are_named():
    file, *_ = workbook("Notes")
    done = invoke("ab", file, "--metric", "cost", "--group", "area")
    assert "claims.xlsx: sheet 'Claims' is read, and not 'Notes': --sheet names another" in done.stdout


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_kept_column_is_not_overwritten(ending):
    pq.write_table(pa.table({"size": SIZE, "prediction": AREA, "cost": COST}), "data.parquet")
    invoke("fit", "data.parquet", "--target", "cost", "--out", "m")
    asked = ["predict", "m", "data.parquet", "--keep", "prediction", "--out", f"p.{ending}"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 2
    assert "the predictions have a column of that name, too" in done.output
    assert not Path(f"p.{ending}").exists()


def test_dates_that_are_kept_have_no_midnight():
    invoke("fit", *workbook(), "--out", "m")
    invoke("predict", "m", "claims.xlsx", "--keep", "paid", "--out", "p.csv")
    assert Path("p.csv").read_text().splitlines()[1].startswith("2024-01-01,")
    book = openpyxl.load_workbook("claims.xlsx")
    book["Claims"]["C2"] = dt.datetime(2024, 1, 1, 12)
    book.save("noon.xlsx")
    invoke("predict", "m", "noon.xlsx", "--keep", "paid", "--out", "p.csv")
    assert Path("p.csv").read_text().splitlines()[1].startswith("2024-01-01 12:00:00")


@pytest.mark.parametrize("more", [(), ("--weight", "w")])
def test_the_report_drops_what_the_command_dropped(more):
    """Blanks after commas belong to no name; a name with a comma is one."""
    table = pa.table({"size": SIZE, "reg": AREA, "area": AREA, "a, b": COST, "w": np.ones(N), "cost": COST})
    csv.write_csv(table, "data.csv")
    dropped = ("--drop", "reg, area", "--drop", "a, b", *more)
    invoke("fit", "data.csv", "--target", "cost", *dropped, "--out", "m", "--report", "r.html")
    shown = html.unescape(re.sub(r"<[^>]*>", "", Path("r.html").read_text()))
    code = shown[shown.index("import tailproof as tp") : shown.index("report_)\n") + len("report_)\n")]
    names = {}
    exec(code, names)
    estimator = getattr(names["model"], "estimator_", names["model"])
    assert np.array_equal(estimator.coef_, tp.load("m").estimator.coef_)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_kept_name_with_a_comma_is_one(ending):
    table = pa.table({"size": SIZE, "reg": AREA, "a, b": AREA, "cost": COST})
    pq.write_table(table, "data.parquet")
    invoke("fit", "data.parquet", "--target", "cost", "--out", "m")
    invoke("predict", "m", "data.parquet", "--keep", "a, b", "--keep", "reg, size", "--out", f"p.{ending}")
    names = {"csv": csv.read_csv, "parquet": pq.read_table}[ending](f"p.{ending}").column_names
    assert names == ["a, b", "reg", "size", "prediction"]


def test_the_path_of_a_model_is_no_model():
    with pytest.raises(TypeError, match=r"'m' is a path: tailproof\.load reads it"):
        tp.predict("m", "data.csv")


@pytest.mark.parametrize("sheet", [(), ("--sheet", "Nothing")])
def test_a_workbook_is_closed_again(monkeypatch, sheet):
    closed, close = [], openpyxl.Workbook.close
    monkeypatch.setattr(openpyxl.Workbook, "close", lambda book: (closed.append(book), close(book))[1])
    done = CliRunner().invoke(app, ["fit", *workbook(), *sheet, "--out", "m"])
    assert done.exit_code == (1 if sheet else 0)
    assert len(closed) >= 1
