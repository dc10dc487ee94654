"""The examples with networks do what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, **arguments):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](**arguments)


def test_heavy_tails(capsys):
    robust, plain = run("torch_heavy_tails", n=3_000)
    assert robust < 0.6 * plain
    assert "recentred to the mean" in capsys.readouterr().out


def test_federated(capsys):
    robust, plain = run("torch_federated")
    assert robust > max(0.85, plain + 0.05)
    assert "majority radius" in capsys.readouterr().out


@pytest.mark.parametrize("n", [900])
def test_lstm(n, capsys):
    excess, variance = run("torch_lstm", n=n)
    assert excess < 0.3 * variance
    assert "weights of the copies" in capsys.readouterr().out
