"""Every example in a docstring, and every Python block of the README, runs and says what it says."""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tailproof
from tailproof.cli.app import app

ROOT = Path(__file__).parents[2]
MODULES = [
    m.name
    for m in pkgutil.walk_packages(tailproof.__path__, "tailproof.")
    if not m.name.endswith("__main__") and ".kernels_" not in m.name  # the C libraries
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    # A run looks at every file on disk that was ever shown: not for a docstring without examples.
    found = [test for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples]
    assert [test.name for test in found if runner.run(test).failed] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_python_blocks_run(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    with contextlib.redirect_stdout(io.StringIO()):
        for code in blocks:
            exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_python_blocks_of_a_page_run_one_after_another(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in blocks:
            exec(compile(code, page, "exec"), names)


_NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+−]?\d+)?")


def _without_seconds(text):
    """Lines of output, without the last column of a table that ends in seconds."""
    lines, timed = [], False
    for line in (" ".join(line.split()) for line in text.splitlines()):
        if line:
            lines.append(line.rpartition(" ")[0] if timed and re.search(r" \d+\.\d{3}$", line) else line)
            timed = timed or line.endswith("seconds")
    return lines


def _numbers(line):
    return [float(number.replace(",", "").replace("−", "-")) for number in _NUMBER.findall(line)]


def assert_same_output(found, shown):
    """The same words in every line, and the same numbers but for rounding, which differs between machines."""
    lines = _without_seconds(found), _without_seconds(shown)
    assert [_NUMBER.sub("#", line) for line in lines[0]] == [_NUMBER.sub("#", line) for line in lines[1]]
    for line, other in zip(*lines, strict=True):
        assert _numbers(line) == pytest.approx(_numbers(other), rel=0.01, abs=1e-3), line


def test_another_number_or_word_is_another_output():
    table = "model loss seconds\nlinear 1,234 0.012\n"
    assert_same_output(table, "model  loss  seconds\n linear 1,235   0.500")
    for other in (table.replace("1,234", "1,264"), table.replace("linear", "huber"), "model loss seconds\n"):
        with pytest.raises(AssertionError):
            assert_same_output(table, other)


def test_the_page_of_the_command_line_shows_what_it_prints(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "command_line.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(compile(re.search(r"```{code-block} python\n(.*?)```", page, re.DOTALL)[1], "page", "exec"), {})
    shown = re.findall(r"```console\n\$ tailproof (.*?)\n(.*?)```", page, re.DOTALL)
    assert len(shown) == 4
    for command, printed in shown:
        done = CliRunner().invoke(app, shlex.split(command))
        assert done.exit_code == 0, done.output
        assert_same_output(done.output, printed)


PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    inside = [link.split("#")[0] for link in links if not link.startswith(("http", "#"))]
    made = ("gallery/", "generated/")  # by the build
    assert [link for link in inside if not link.startswith(made) and not (page.parent / link).exists()] == []


# Words of the first screen of a fit's report that are not everyday English.
TERMS = [
    *("least squares", "typical error", "constant", "held out", "deviance", "Gini index", "lift", "AUC"),
    *("GLM", "logistic regression", "heavy tails", "regression", "classification", "column of numbers"),
    *("R²", "RMSE", "MAE", "log loss", "accuracy", "rows that drive the result", "RobustRegressor", "k"),
]


@pytest.mark.parametrize("term", TERMS)
def test_words_of_a_report_are_in_the_glossary(term):
    entries = re.findall(r"^\*\*(.+)\*\*$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert any(term in re.split(", ", entry) for entry in entries)
