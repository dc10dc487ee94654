"""The judge of the soak: violations are counted and change the exit code."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("incidents", "world", "work"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("soak_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_violations_are_told_and_counted(run, capsys):
    from world import require

    def good(world):
        return "as it should be"

    def bad(world):
        require(False, "a row is lost")

    counts = run.soak(None, [good, bad], 0.0, random.Random(0))
    assert sum(counts.values()) == 1
    assert run.tried(good, None) == (True, "as it should be")
    well, words = run.tried(bad, None)
    assert not well
    assert "a row is lost" in words


def test_incidents_without_processes(run, tmp_path):
    import incidents
    from world import World

    (tmp_path / "soak").mkdir()
    world = World(tmp_path / "soak", seed=0)
    assert "with rows" in incidents.empty_partitions(world)
    world.check_nothing_left()
    (world.temporary / "tailproof-x").mkdir()
    with pytest.raises(Exception, match="left in the temporary folder"):
        world.check_nothing_left()
