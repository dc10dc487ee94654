"""Intervals, rows and the contamination mode on the command line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
from typer.testing import CliRunner

from tailproof.cli.app import app

N = 300


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intervals")
    rng = np.random.default_rng(0)
    size = rng.standard_normal(N)
    cost = 2 * size + rng.lognormal(0, 1.5, N)
    cost[4] = 1e4
    pc.write_csv(pa.table({"size": size, "cost": cost}), folder / "data.csv")
    made = run("fit", "data.csv", "--target", "cost", "--out", "m", "--rows", "rows.csv", folder=folder)
    assert made.exit_code == 0, made.output
    return folder


def run(*arguments, folder):
    paths = [str(folder / one) if one in FILES else one for one in arguments]
    return CliRunner().invoke(app, paths)


FILES = {"data.csv", "m", "rows.csv", "out.csv", "gaps.csv", "w"}


def test_rows_that_count_least_come_first(fitted):
    rows = pc.read_csv(fitted / "rows.csv")
    assert rows.column_names == ["row", "weight", "cost", "prediction", "share of squared error"]
    assert rows["row"][0].as_py() == 5
    assert rows["cost"][0].as_py() == 1e4
    assert np.all(np.diff(rows["weight"].to_numpy()) >= 0)


def test_predictions_have_intervals(fitted):
    done = run("predict", "m", "data.csv", "--out", "out.csv", "--interval", "0.9", folder=fitted)
    assert "90% of new values" in done.output
    written, cost = pc.read_csv(fitted / "out.csv"), pc.read_csv(fitted / "data.csv")["cost"].to_numpy()
    low, high = written["low"].to_numpy(), written["high"].to_numpy()
    assert abs(np.mean((low <= cost) & (cost <= high)) - 0.9) < 0.05


def test_an_interval_is_a_share(fitted):
    done = run("predict", "m", "data.csv", "--out", "out.csv", "--interval", "90", folder=fitted)
    assert done.exit_code == 2
    assert "--interval is a share" in done.output


def test_info_prints_coefficients_with_intervals(fitted):
    text = run("info", "m", folder=fitted).output
    assert "95% low" in text
    assert "standard errors" in text.lower()
    facts = json.loads(run("info", "m", "--json", folder=fitted).output)
    first = facts["coefficients"][0]
    assert first["coefficient"] == "size"
    assert first["95% low"] < 2 < first["95% high"]


def test_the_majority_on_request(fitted):
    asked = ("fit", "data.csv", "--target", "cost", "--out", "out.csv", "--contamination", "0.2")
    assert "As asked, the fit of the majority" in run(*asked, folder=fitted).output
    wrong = run(*asked[:-1], "0.7", folder=fitted)
    assert wrong.exit_code == 2
    refused = run(*asked[:-2], "--method", "dc", "--rows", "rows.csv", folder=fitted)
    assert refused.exit_code == 2
    assert "--rows goes with" in refused.output


def test_rows_have_the_numbers_of_the_data_everywhere(fitted):
    table = pc.read_csv(fitted / "data.csv")
    size, cost = (table[name].to_numpy().copy() for name in ("size", "cost"))
    size[[20, 21, 22]], cost[:10] = 1e9, np.nan
    pc.write_csv(pa.table({"size": size, "cost": pa.array(cost, from_pandas=True)}), fitted / "gaps.csv")
    asked = ("fit", "gaps.csv", "--target", "cost", "--out", "w", "--rows", "rows.csv")
    said = " ".join(run(*asked, folder=fitted).output.split())
    told = " ".join(run("info", "w", folder=fitted).output.split())
    for text in (said, told):
        assert "rows 21, 22, 23." in text
        assert "--keep-all" in text
        assert "drop_glitches" not in text
    assert set(pc.read_csv(fitted / "rows.csv")["row"].to_pylist()[:3]) == {21, 22, 23}
    kept = " ".join(run(*asked, "--keep-all", folder=fitted).output.split())
    assert "all were kept; rows 21, 22, 23." in kept
