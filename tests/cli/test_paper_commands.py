"""``tailproof paper``: what it prints, and one line for every mistake."""

import subprocess
import sys
from functools import partial

import pytest
from typer.testing import CliRunner

from tailproof.cli import paper_commands
from tailproof.cli.app import app
from tailproof.paper.judging import judge

runner = CliRunner()


def paper(*arguments):
    return runner.invoke(app, ["paper", *(str(argument) for argument in arguments)])


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trials")
    done = paper("run", "sc-e1", "--trials", 2, "--jobs", 1, "--out", folder)
    assert done.exit_code == 0, done.output
    assert "4 trials run" in done.stdout
    return folder


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """What is judged is the subject of other tests."""
    monkeypatch.setattr(paper_commands, "judge", partial(judge, resamples=5))


def test_list_names_experiments_and_variants():
    done = paper("list")
    assert done.exit_code == 0
    for name in ("sc-e1", "sc-e5", "nonsc-e4", "rv_scale", "lec_cost"):
        assert name in done.stdout


def test_plot_draws_into_the_folder_asked_for(out, tmp_path):
    done = paper("plot", "sc-e1", "--out", out, "--figures", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        "sc-e1-normal.png",
        "sc-e1-lognormal.png",
        "sc-e1-readings.png",
    }


def test_check_prints_verdicts_and_writes_them(out, tmp_path):
    done = paper("check", "sc-e1", "--out", out, "--markdown", tmp_path / "verdicts.md")
    assert done.exit_code == 0, done.output
    assert "verdict" in done.stdout
    assert (tmp_path / "verdicts.md").read_text(encoding="utf-8").count("sc-e1") > 5


def test_check_of_everything_says_what_is_not_there(out):
    done = paper("check", "--out", out)
    assert done.exit_code == 0
    assert "not run: beyond-e1, beyond-e2, beyond-e3, beyond-e4, nonsc-e1" in done.stdout


def test_variants_have_their_own_trials(tmp_path):
    done = paper("run", "sc-e1", "--trials", 1, "--jobs", 1, "--out", tmp_path, "--set", "lec_cost=all")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "sc-e1@lec_cost=all").is_dir()
    assert paper("plot", "sc-e1", "--out", tmp_path).exit_code == 2


MISTAKES = [
    (("run", "sc-e9"), "experiment must be one of"),
    (("plot", "sc-e9"), "experiment must be one of"),
    (("check", "sc-e9"), "experiment must be one of"),
    (("run", "sc-e1", "--trials", "0"), "number of trials must be at least 1; got 0"),
    (("run", "sc-e1", "--trials", "-4"), "number of trials must be at least 1; got -4"),
    (("run", "sc-e1", "--trials", "many"), "Invalid value for '--trials'"),
    (("run", "sc-e1", "--jobs", "0"), "number of jobs must be at least 1"),
    (("run", "sc-e1", "--set", "start=two"), "start must be one of ['each', 'one']"),
    (("run", "sc-e1", "--set", "colour=red"), "the name of a choice must be one of"),
    (("plot", "sc-e2"), "run `tailproof paper run sc-e2` first"),
    (("check",), "no trials in"),
    (("check", "sc-e2"), "run `tailproof paper run sc-e2` first"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line(arguments, message, tmp_path):
    done = paper(*arguments, "--out", tmp_path / "none")
    assert done.exit_code == 2
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1
    assert message in lines[0]
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/trials"])
def test_a_folder_that_cannot_be_written(where, tmp_path):
    (tmp_path / "file").touch()
    done = paper("run", "sc-e1", "--trials", 1, "--out", tmp_path / where)
    assert done.exit_code == 2
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1
    assert "cannot write to" in lines[0]


def test_figures_in_a_folder_that_cannot_be_written(out, tmp_path):
    (tmp_path / "file").touch()
    done = paper("plot", "sc-e1", "--out", out, "--figures", tmp_path / "file")
    assert done.exit_code == 2
    assert "cannot write figures to" in done.stderr


@pytest.mark.parametrize("package", ["pyarrow", "matplotlib"])
def test_a_missing_package_is_named_with_its_extra(package, out, tmp_path):
    block = f"import sys; sys.modules['{package}'] = sys.modules['{package}.parquet'] = None; "
    block += f"sys.modules['{package}.figure'] = None; sys.argv = ['tailproof', 'paper', 'plot', 'sc-e1', "
    block += f"'--out', {str(out)!r}, '--figures', {str(tmp_path)!r}]; "
    done = subprocess.run(
        [sys.executable, "-c", block + "from tailproof.__main__ import main; main()"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'tailproof[paper]'" in done.stderr
    assert "Traceback" not in done.stderr
