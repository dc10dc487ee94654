"""The examples with networks do what they say."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
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


def test_gallery(capsys):
    plt.switch_backend("agg")
    shown = runpy.run_path(str(EXAMPLES / "gallery" / "plot_network.py"))
    plt.close("all")
    plain, robust = (np.mean(shown["errors"][name] ** 2) for name in ("one network", "RobustNetRegressor"))
    assert robust < plain
