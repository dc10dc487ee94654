"""What the layout promises: few modules a fit, listed public names, one place for private imports."""

import ast
import inspect
import re
import sys
from pathlib import Path

import pytest

import tailproof

SOURCE = Path(tailproof.__file__).parent
ROOT = Path(__file__).parents[2]
PUBLIC = ["losses", "means", "merge", "partition", "sets", "steps", "theory", "diagnose", "plots"]


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import count_modules

    yield count_modules
    sys.modules.pop("count_modules")


def test_a_fit_on_an_array_visits_few_modules(counted):
    modules = counted.fit_on_an_array()
    assert "core.sgd" in modules
    assert len(modules) <= 18, modules


def test_a_fit_on_parquet_visits_few_modules(counted):
    modules = counted.fit_on_parquet()
    assert "data.training" in modules
    # 28, three that look for errors of measurement in rows nobody has all at once, and one that takes plain
    # numbers as they lie in their file.
    assert {"core.populations", "data.bounds", "data.far_rows", "data.readers.plain"} <= set(modules)
    assert len(modules) <= 32, modules


def defined(module):
    """Public functions, classes and constants of a module, but for its integer codes."""
    names = set()
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_") and not isinstance(getattr(module, name), int)}


@pytest.mark.parametrize("name", PUBLIC)
def test_all_lists_every_public_name(name):
    module = getattr(tailproof, name)
    assert defined(module) <= set(module.__all__) <= set(dir(module))
    assert len(module.__all__) == len(set(module.__all__))


@pytest.mark.parametrize("name", ["model_selection", "tables", "torch"])
def test_packages_show_what_they_list(name):
    package = __import__(f"tailproof.{name}", fromlist=["__all__"])
    shown = {one for one in dir(package) if not one.startswith("_")}
    modules = {one for one in shown if inspect.ismodule(getattr(package, one))}
    assert shown - modules - {"annotations"} == set(package.__all__)


def test_private_names_of_scikit_learn_are_in_one_file():
    private = re.compile(r"^\s*from sklearn[\w.]*\._\w|^\s*from sklearn[\w.]* import .*(?<!\w)_\w", re.M)
    several = re.compile(r"from sklearn[\w.]* import \([^)]*?(?<!\w)_\w[^)]*\)")
    files = {path for path in SOURCE.rglob("*.py") if private.search(path.read_text())}
    files |= {path for path in SOURCE.rglob("*.py") if several.search(path.read_text())}
    assert files == {SOURCE / "estimators" / "sklearn_private.py"}
