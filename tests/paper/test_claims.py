"""Claims: every entry can be measured; the verdict follows from the interval; figures of everything."""

import functools
import math
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tailproof.paper import claims as c
from tailproof.paper import measures
from tailproof.paper.catalogue import get_experiment
from tailproof.paper.claims import CLAIMS
from tailproof.paper.experiments import EXPERIMENTS
from tailproof.paper.figures import FIGURES, draw
from tailproof.paper.judging import Claim, Reading, as_markdown, cells, judge
from tailproof.paper.methods import METHODS
from tailproof.paper.panels import COLOURS, panels, tidy_ticks
from tailproof.paper.store import Curves, Store
from tailproof.paper.variants import Choices


@functools.cache
def invented(name, trials=8):
    """Results of the right shape for every setting of an experiment, with falling curves."""
    random = np.random.default_rng(0)
    found = {}
    for setting in get_experiment(name).settings:
        found[setting.name] = {}
        for method, budget in setting.budgets.items():
            costs = np.append(setting.looks(budget, setting.problem.n), int(budget)).astype(np.intp)
            level = np.linspace(5.0, 0.1, costs.size) if costs.size > 1 else np.array([0.1])
            excess = level * random.lognormal(0, 0.3, (trials, costs.size))
            found[setting.name][method] = Curves(costs, excess, *random.lognormal(0, 1, (2, trials)))
    return found


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.experiment}: {claim.text}")
def test_every_claim_can_be_measured(claim):
    found = judge(claim, invented(claim.experiment), resamples=5)
    assert not math.isnan(found.value)
    assert found.low <= found.high
    assert found.verdict in {"holds", "fails", "undecided", "measured"}
    assert set(found.readings) == {reading.name for reading in claim.readings}
    assert not any(math.isnan(reading.value) for reading in found.readings.values())
    assert math.isnan(claim.low) == (claim.where == "why")


def test_every_experiment_has_claims_and_no_two_lines_are_the_same():
    assert {claim.experiment for claim in CLAIMS} == set(EXPERIMENTS)
    lines = [(claim.experiment, claim.text, claim.quantity) for claim in CLAIMS]
    assert len(set(lines)) == len(lines)


def constant(value, spread=0.0, trials=50):
    excess = value + spread * np.random.default_rng(1).standard_normal((trials, 1))
    return {"s": {"m": Curves(np.array([1]), excess, *np.full((2, trials), np.nan))}}


def claim_about_the_mean(low, high):
    return Claim(
        "",
        "text",
        "mean",
        lambda m: float(m["m"].final.mean()),
        low,
        high,
        experiment="sc-e1",
        settings=("s",),
    )


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0, 2, "holds"),
        (2, 3, "fails"),
        (-3, 0, "fails"),
        (1, 3, "undecided"),
        (math.nan, math.nan, "measured"),
    ],
)
def test_verdicts(low, high, verdict):
    assert judge(claim_about_the_mean(low, high), constant(1.0, spread=0.1)).verdict == verdict


def test_a_verdict_that_hangs_on_the_reading_says_so():
    higher = Reading("twice", lambda m: 2 * float(m["m"].final.mean()), 0, 1.5)
    wider = Reading("wider", lambda m: float(m["m"].final.mean()), 0, 3)
    absent = Reading("absent", lambda m: float(m["other"].final.mean()), 0, 3)
    claim = replace(claim_about_the_mean(0, 1.5), readings=(higher, wider, absent))
    found = judge(claim, constant(1.0, spread=0.1))
    assert (found.verdict, found.conclusion) == ("holds", "depends")
    assert set(found.readings) == {"twice", "wider"}
    assert cells(found)[-1] == "depends: holds with the default, wider; fails with twice"
    same = judge(replace(claim, readings=(wider,)), constant(1.0, spread=0.1))
    assert same.conclusion == cells(same)[-1] == "holds"


def test_a_reading_may_look_at_other_trials():
    mean = claim_about_the_mean(0, 1.5)
    claim = replace(mean, readings=(Reading("elsewhere", mean.measure, 0, 1.5, " [each]"),))
    apart = {"s [each]": constant(2.0, spread=0.1, trials=7)["s"]}
    found = judge(claim, {**constant(1.0, spread=0.1), **apart})
    assert found.trials == 50
    assert (found.verdict, found.readings["elsewhere"].verdict) == ("holds", "fails")
    assert cells(found)[4] == "50"
    assert judge(claim, constant(1.0, spread=0.1)).readings == {}  # no such trials


def test_the_interval_covers_like_the_normal_one():
    found = judge(claim_about_the_mean(0, 2), constant(1.0, spread=0.5))
    error = 0.5 / math.sqrt(50)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.25)


def test_two_trials_decide_nothing():
    assert judge(claim_about_the_mean(0, 2), constant(1.0, trials=2)).verdict == "undecided"
    counted = replace(claim_about_the_mean(0, 2), exact=True)
    assert judge(counted, constant(1.0, trials=2)).verdict == "holds"


def test_a_ratio_over_nothing_decides_nothing():
    flat = {"s": {name: Curves(np.array([1]), np.ones((9, 1)), *np.ones((2, 9))) for name in ("a", "b")}}
    claim = Claim(
        "", "t", "q", measures.end_ratio("a", ("b",), "sd"), 0, 1, experiment="sc-e1", settings=("s",)
    )
    assert judge(claim, flat).verdict == "undecided"


def test_a_claim_without_trials_is_not_run():
    assert judge(claim_about_the_mean(0, 2), {}).verdict == "not run"


def curves(*levels, costs=None):
    excess = np.array([levels, levels])
    return Curves(
        np.array(costs or range(1, len(levels) + 1)), excess, np.array([1.0, 3.0]), np.array([2.0, 6.0])
    )


def test_measures_on_curves_that_can_be_done_by_hand():
    methods = {
        "RGD-MoM": curves(9, 9, 2, 2, costs=[500, 1000, 1500, 2000]),
        "RGD-M": curves(9, 9, 9, 1, costs=[500, 1000, 1500, 2000]),
        "RGD-Lec": curves(9, 9, 9, 9, costs=[500, 1000, 1500, 2000]),
        "DC-SGD": curves(9, 1.2, 1.2, 1.2, costs=[500, 1000, 1500, 2000]),
        "true GD": curves(8, 4, 2, 1, costs=[500, 1000, 1500, 2000]),
    }
    assert measures.passes_to_match("DC-SGD", "average")(methods) == 2
    assert measures.cost_share("DC-SGD")(methods) == 0.5
    assert measures.end_ratio("DC-SGD", measures.ROBUST)(methods) == pytest.approx(1.2)
    assert measures.passes_until_invisible("DC-SGD")(methods) == math.inf  # 1.2 > 1 + 8/100
    assert measures.passes_until_invisible("RGD-M")(methods) == 4
    assert measures.visible_gap("DC-SGD", measures.ROBUST)(methods) == pytest.approx(0.2 / 8)
    assert measures.same_progress("DC-SGD", "RGD-MoM", 1700)(methods) == pytest.approx(2 / 1.2)
    assert measures.over_start("DC-SGD")(methods) == pytest.approx(1.2 / 8)
    assert measures.passed_on("RGD-MoM", 1000)(methods) == pytest.approx(2 / 9)
    assert measures.seconds_ratio("DC-SGD", "RGD-M")(methods) == 1.0
    never = methods | {"DC-SGD": curves(9, 1, 1, 2, costs=[500, 1000, 1500, 2000])}
    assert measures.passes_to_match("DC-SGD", "average")(never) == math.inf


def test_words_have_the_numbers_that_the_module_says():
    assert (measures.COMPARABLE, c.ALIKE, c.FEW_PASSES, c.FAR_LESS, c.SMALL_PART) == (
        1.25,
        1.1,
        5,
        1 / 3,
        0.2,
    )


def test_markdown_has_a_row_for_every_verdict():
    found = [judge(claim_about_the_mean(0, 2), constant(1.0, 0.1), resamples=20)] * 3
    lines = as_markdown(found).splitlines()
    assert len(lines) == 5
    assert {line.count("|") for line in lines} == {10}
    assert "holds" in lines[-1]


def drawn(axes):
    """Numbers that a panel shows, whatever shows them."""
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    areas = [path.vertices[:, 1] for area in axes.collections for path in area.get_paths()]
    bars = [np.array([bar.get_height()]) for bar in axes.patches if hasattr(bar, "get_height")]
    return np.concatenate([*lines, *areas, *bars, np.empty(0)])


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("trials", [1, 5])
def test_figures_of_every_experiment(name, trials):
    before = matplotlib.rcParams["backend"]
    figures = FIGURES[name](invented(name, trials=trials))
    assert figures
    for figure in figures.values():
        assert figure.axes
        for axes in figure.axes:
            assert np.isfinite(drawn(axes)).any()
    assert matplotlib.rcParams["backend"] == before


@pytest.mark.parametrize(("low", "high"), [(2_500, 50_000), (1.25, 2.75), (0.2, 5), (1e-3, 1e3)])
def test_labels_of_log_axes_do_not_collide(low, high):
    figure, grid = panels((5.0, 3.0), 1, 1, "cost", "risk")
    grid[0, 0].plot([low, high], [low, high])
    grid[0, 0].set(xscale="log", yscale="log")
    tidy_ticks(figure)
    FigureCanvasAgg(figure).draw()
    every = grid[0, 0].xaxis.get_ticklabels(which="both")
    places = sorted((box.x0, box.x1) for t in every if t.get_text() for box in [t.get_window_extent()])
    shown = [(begin, end) for begin, end in places if begin > 0]
    assert len(shown) >= 2
    assert all(end < begin for (_, end), (begin, _) in pairwise(shown))


def test_times_show_worker_processes_beside_threads():
    (figure,) = FIGURES["sc-e3"](invented("sc-e3", trials=3)).values()
    labels = {line.get_label() for line in figure.axes[2].lines}
    assert {"DC-SGD", "DC-SGD, 2 threads", "DC-SGD, 2 processes"} <= labels


def test_figures_are_saved_as_small_files(tmp_path):
    files = draw(Store(tmp_path, get_experiment("sc-e1"), Choices()), invented("sc-e1", trials=5), tmp_path)
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size < 400_000
    assert len(files) == len(FIGURES["sc-e1"](invented("sc-e1", trials=5)))


@pytest.mark.parametrize("name", ["sc-e2", "nonsc-e2"])
def test_no_box_is_outside_its_panel(name):
    results = {}
    for setting, methods in invented(name, trials=5).items():
        d = get_experiment(name).setting(setting).problem.d
        results[setting] = {n: replace(curves, excess=curves.excess * d**2) for n, curves in methods.items()}
    for figure in FIGURES[name](results).values():
        for axes in figure.axes:
            low, high = axes.get_ylim()
            heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
            assert low <= heights.min()
            assert heights.max() <= high


def test_one_colour_for_every_method_and_figures_for_every_experiment():
    assert {name.partition(" [")[0].partition(",")[0] for name in METHODS} == set(COLOURS)
    real = [colour for name, colour in COLOURS.items() if not name.startswith("true")]
    assert len(set(real)) == len(real)
    assert set(FIGURES) == set(EXPERIMENTS)
