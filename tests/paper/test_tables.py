"""Tables 1 and 2 as functions, and Figure 1."""

import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tailproof.cli.app import app
from tailproof.core.merge import majority_radius
from tailproof.paper.tables import TABLE_1, TABLE_2, Sizes, TrickyCandidates, figure_1, table

BY_NAME = {row.method: row for row in (*TABLE_1, *TABLE_2)}
BASE = Sizes(n=10**6, steps=10_000)  # so many steps that nothing is left of the start


def growth(name, what, **change):
    """By which factor an entry grows where one of the sizes does."""
    entry = getattr(BY_NAME[name], f"{what}_at")
    return entry(replace(BASE, **change)) / entry(BASE)


def test_error_of_the_proposed_methods_does_not_depend_on_d():
    assert growth("DC-SGD", "error", d=10_000) == growth("RV-SGDAve", "error", d=10_000) == 1
    assert growth("DC-SGD", "error", delta=0.05**2) == pytest.approx(2)
    assert growth("DC-SGD", "error", n=10**7) == pytest.approx(0.1)
    assert growth("RV-SGDAve", "error", n=10**8) == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("name", ["RGD-by-MoM", "RGD-M", "RGD"])
def test_error_of_batch_methods_grows_with_d(name):
    assert growth(name, "error", d=10_000) > 5


def test_steps_end_the_optimisation_error_and_are_paid_for():
    few, many = (replace(Sizes(), steps=steps) for steps in (1, 200))
    for name in ("RGD-by-MoM", "RGD-M"):
        assert BY_NAME[name].error_at(few) > BY_NAME[name].error_at(many)
        assert BY_NAME[name].cost_at(many) == pytest.approx(200 * BY_NAME[name].cost_at(few))
    assert BY_NAME["RGD-M"].error_at(many) == pytest.approx(
        0.9**400 + 100 * (math.log(2000) + math.log(10_000)) / 10_000
    )
    # Without strong convexity, errors are carried along: more steps make it worse in the end.
    assert BY_NAME["RGD"].error_at(replace(Sizes(), steps=2000)) > BY_NAME["RGD"].error_at(Sizes())


def test_tables_have_the_paper_s_rows():
    assert [row[0] for row in table(TABLE_1, Sizes())] == ["DC-SGD", "RGD-by-MoM", "RGD-M", "MoM-by-GD"]
    assert [row[0] for row in table(TABLE_2, Sizes())] == ["RV-SGDAve", "RGD"]


@pytest.mark.parametrize(
    ("method", "error", "cost"),
    [
        ("DC-SGD", math.log(100) / 5000, 30 * 5000 / math.log(100) + 30 * 37),
        ("RGD-by-MoM", 0.9**40 + 37 * (30 + math.log(100)) / 5000, 20 * (30 * 5000 / 37 + 30 * 37)),
        ("RGD-M", 0.9**40 + 30 * (math.log(3000) + math.log(5000)) / 5000, 20 * 30 * 5000),
        ("MoM-by-GD", math.sqrt(30 / 5000), 20 * (30 * 5000 / 37 + 37 * math.log(37))),
        (
            "RV-SGDAve",
            math.sqrt(math.log(100) / 5000) * (1 + 1) + 2 * math.log(100) / 5000,
            30 * 5000 * math.log(100),
        ),
        (
            "RGD",
            1.02**20 * math.sqrt(30 * (math.log(3000) + math.log(5000)) / (5000 * 20)),
            20 * 30 * 5000 * math.log(100),
        ),
    ],
)
def test_entries_are_the_paper_s_formulas(method, error, cost):
    """n = 5000, d = 30, T = 20, δ = 0.01, so k = ⌈8 log 100⌉ = 37; λ₁ = 2, α = 0.01, variances 1."""
    sizes = Sizes(n=5000, d=30, steps=20, delta=0.01, smoothness=2.0)
    assert BY_NAME[method].error_at(sizes) == pytest.approx(error)
    assert BY_NAME[method].cost_at(sizes) == pytest.approx(cost)


def test_figure_1_shows_a_good_majority_with_a_bad_median():
    found = TrickyCandidates()
    good = found.risk(found.points) <= 1
    assert good.sum() > len(good) / 2
    assert found.risk(found.merged) > 1 >= found.risk(found.chosen)
    # Far from each other: no small ball holds them.
    assert majority_radius(found.points[good], found.points[good][0]) > 2
    assert len(figure_1().axes[0].lines) == 5


def test_command_prints_both_tables_and_draws(tmp_path):
    done = CliRunner().invoke(app, ["paper", "theory", "--d", "50", "--figures", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "RGD-by-MoM" in done.stdout
    assert "RV-SGDAve" in done.stdout
    assert (tmp_path / "figure-1.png").read_bytes().startswith(b"\x89PNG")
    assert np.isfinite((tmp_path / "figure-1.png").stat().st_size)
