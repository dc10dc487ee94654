"""``tailproof ab``: numbers equal Python's, pages say what they mean, mistakes are one sentence."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import tailproof as tp
from tailproof.cli.app import app

run = CliRunner().invoke


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    rng, n = np.random.default_rng(0), 3_000
    variant = np.array(["new", "old", "third"])[rng.integers(0, 3, n)]
    before = rng.lognormal(0, 1, n)
    revenue = before + rng.lognormal(0, 1, n) + 0.5 * (variant == "new")
    revenue[:4] = np.nan
    path = tmp_path_factory.mktemp("ab") / "visits.csv"
    pa.csv.write_csv(pa.table({"variant": variant, "revenue": revenue, "before": before}), path)
    return path, variant[4:], revenue[4:], before[4:]


def told(*words):
    done = run(app, ["ab", *map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_numbers_are_those_of_python(experiment):
    path, variant, revenue, _ = experiment
    found = told(path, "--metric", "revenue", "--group", "variant", "--control", "old")
    assert found["left_out"] == 4
    assert list(found["groups"]) == ["new", "third"]
    for name in found["groups"]:
        python = tp.compare_means(revenue[variant == name], revenue[variant == "old"], delta=0.025)
        assert found["groups"][name]["low"] == pytest.approx(python.low, rel=1e-12)
    assert found["groups"]["new"]["low"] > 0


def test_standard_input_is_read_as_by_the_other_commands(experiment):
    asked = ["--metric", "revenue", "--group", "variant", "--json"]
    piped = run(app, ["ab", "-", *asked], input=experiment[0].read_bytes())
    assert piped.exit_code == 0, piped.output
    assert json.loads(piped.stdout) == told(experiment[0], *asked[:-1])


def test_files_are_read_by_the_options_of_the_other_commands(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("g;v\n" + "".join(f"{'ab'[j % 2]};{j},250\n" for j in range(1, 60)) + "a;-99\n")
    asked = (path, "--metric", "v", "--group", "g", "--na", "-99")
    euro, english = told(*asked, "--decimal", ","), told(*asked, "--decimal", ".")
    assert euro["left_out"] == english["left_out"] == 1
    sums = [groups["groups"]["b"]["difference"] for groups in (euro, english)]
    assert sums[1] == pytest.approx(1000 * sums[0], rel=1e-6)


def test_adjusting_for_what_was_known_before_shortens_the_interval(experiment):
    path = experiment[0]
    asked = (path, "--metric", "revenue", "--group", "variant", "--control", "old")
    plain, adjusted = (told(*asked, *more)["groups"]["new"] for more in ((), ("--before", "before")))
    assert adjusted["high"] - adjusted["low"] < 0.9 * (plain["high"] - plain["low"])


def test_what_a_person_reads(experiment, tmp_path):
    path, page = experiment[0], tmp_path / "page.html"
    asked = ["ab", str(path), "--metric", "revenue", "--group", "variant", "--report", str(page)]
    done = run(app, asked)
    assert done.exit_code == 0, done.output
    assert "against 'new'" in done.stdout
    assert "rows without a value, or with an infinite one, left out: 4" in done.stdout
    assert "The mean of 'old' is lower than that of 'new' by" in done.stdout
    assert "Both intervals hold together with confidence 95%, each with 97.5%." in done.stdout
    assert "Change is the difference in percent" in done.stdout
    html = page.read_text()
    assert "Experiment: revenue" in html
    assert "beyond chance" in html
    assert "each with 97.5%" in html
    assert "every look" not in html


def test_several_looks_are_said(experiment):
    asked = ["ab", str(experiment[0]), "--metric", "revenue", "--group", "variant", "--planned", "9000"]
    assert "They hold at every look at growing data, up to 9,000 values." in run(app, asked).stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--metric", "cost", "--group", "variant"], "there is no column 'cost'"),
        (["--metric", "variant", "--group", "revenue"], "column 'variant' holds text"),
        (["--metric", "revenue", "--group", "before"], "must have 2 to 20 different values"),
        (["--metric", "revenue", "--group", "revenue"], "must name different columns"),
        (["--metric", "revenue", "--group", "variant", "--control", "none"], "there is no group 'none'"),
        (["--metric", "revenue", "--group", "variant", "--planned", "10"], "planned must be at least"),
    ],
)
def test_mistakes_are_one_sentence(experiment, words, sentence):
    done = run(app, ["ab", str(experiment[0]), *words])
    assert done.exit_code in (1, 2)
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_blanks_around_names_of_groups_do_not_count(experiment, tmp_path):
    path, *_ = experiment
    lines = path.read_text().splitlines()
    padded = [line.replace('"new"', '" new "') if j % 2 else line for j, line in enumerate(lines)]
    (tmp_path / "padded.csv").write_text("\n".join(padded) + "\n")
    asked = "--metric", "revenue", "--group", "variant", "--control", "old"
    assert told(tmp_path / "padded.csv", *asked) == told(path, *asked)
