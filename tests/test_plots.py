import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from tailproof import (
    DCSGDRegressor,
    DivideAndConquer,
    RGDRegressor,
    RobustRegressor,
    RobustValidation,
    RVSGDRegressor,
)
from tailproof.core.tails import tails
from tailproof.model_selection.compare import compare
from tailproof.plots import CandidatesDisplay, ComparisonDisplay, TailDisplay, ValidationDisplay

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 3))
Y = X.sum(axis=1) + RNG.standard_t(2.5, 400)


def axes():
    return Figure().subplots()


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kind", [lambda: DCSGDRegressor(k=9), lambda: DivideAndConquer(Ridge(), k=9)])
def test_candidates(kind, d):
    model, ax = kind().set_params(random_state=0).fit(X[:, :d], Y), axes()
    display = CandidatesDisplay.from_estimator(model, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert display.points.shape == (9, 2)
    assert np.sum(display.distances <= display.radius) == 5
    assert np.all(np.linalg.norm(display.points, axis=1) <= display.distances + 1e-9)
    ax.figure.canvas.draw()


def test_candidates_of_several_classes():
    labels = (X > 0).sum(axis=1)
    model = DivideAndConquer(LogisticRegression(), k=4, random_state=0).fit(X, labels)
    assert CandidatesDisplay.from_estimator(model, ax=axes()).points.shape == (4, 2)


@pytest.mark.parametrize("kind", [lambda: RVSGDRegressor(k=4), lambda: RobustValidation(Ridge(), k=4)])
def test_validation(kind):
    model, ax = kind().set_params(random_state=0).fit(X, Y), axes()
    display = ValidationDisplay.from_estimator(model, ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == display.names
    assert np.allclose(display.risk, model.validation_risk_)
    assert display.best == model.best_index_


def test_labels_of_many_candidates_do_not_overlap():
    model, ax = RobustValidation(Ridge(), k=60, random_state=0).fit(X, Y), axes()
    display = ValidationDisplay.from_estimator(model, ax=ax)
    heights, labels = ax.get_yticks(), [text.get_text() for text in ax.get_yticklabels()]
    assert len(display.names) == 61
    assert 10 < len(labels) < 30
    assert display.names[display.best] in labels
    assert np.diff(np.sort(heights)).min() >= 3
    assert labels == [display.names[60 - int(height)] for height in heights]


def test_displays_say_which_one_to_take():
    with pytest.raises(ValueError, match="use ValidationDisplay"):
        CandidatesDisplay.from_estimator(RVSGDRegressor(k=2).fit(X, Y))
    with pytest.raises(ValueError, match="use CandidatesDisplay"):
        ValidationDisplay.from_estimator(DCSGDRegressor(k=2).fit(X, Y))


def test_tails():
    ax = axes()
    display = TailDisplay.from_values(RNG.pareto(2, 1_000), name="claims", ax=ax)
    assert "claims" in ax.get_title()
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert np.array_equal(lines["moment"].get_ydata(), display.tail.path_moment)
    for values in (np.ones(10), [1.0], RNG.integers(0, 2, 100)):
        TailDisplay.from_tail(tails(values), ax=axes()).figure_.canvas.draw()


@pytest.mark.parametrize("kind", ["difference", "risk"])
def test_comparison(kind):
    found, ax = compare({"a": Ridge(1e5), "b": LinearRegression()}, X, Y), axes()
    ComparisonDisplay.from_comparison(found, kind=kind, ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b", "a"]
    with pytest.raises(ValueError, match="kind must be"):
        ComparisonDisplay.from_comparison(found, kind="other", ax=ax)


def test_own_figure_and_no_import_before():
    code = """
import sys
from tailproof.plots import TailDisplay
assert not [name for name in sys.modules if name.split(".")[0] == "matplotlib"]
import matplotlib
matplotlib.use("agg")
assert TailDisplay.from_values([1.0, 2.0, 5.0] * 40).ax_.figure is not None
assert matplotlib.get_backend() == "agg"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_fitted_estimators_of_other_kinds_are_not_called_unfitted():
    for model in (RobustRegressor(random_state=0), LinearRegression(), RGDRegressor(max_iter=2)):
        model.fit(X, Y)
        for display in (CandidatesDisplay, ValidationDisplay):
            with pytest.raises(ValueError, match=r"does not|has no report_"):
                display.from_estimator(model)
    with pytest.raises(TypeError, match="got NoneType"):
        TailDisplay.from_tail(None)


def test_the_legend_hides_no_candidate():
    model, figure = DivideAndConquer(Ridge(), k=40, random_state=0).fit(X, Y), Figure(layout="constrained")
    ax = CandidatesDisplay.from_estimator(model, ax=figure.subplots()).ax_
    figure.canvas.draw()
    assert not ax.get_window_extent().overlaps(ax.get_legend().get_window_extent())


def test_one_line_far_away_does_not_hide_the_others():
    near = np.linspace(1.0, 1.4, 9)
    risk = np.append(near, [1e6, np.inf])
    names = [f"block {j}" for j in range(11)]
    display = ValidationDisplay(names, risk, risk - 0.5, risk + 0.5, 0).plot(ax=axes())
    left, right = display.ax_.get_xlim()
    assert left < 0.5
    assert 1.9 < right < 20
    assert [text.get_text().strip() for text in display.ax_.texts] == ["1,000,000", "∞"]


def test_pictures_say_where_intervals_cannot_be_relied_on():
    heavy = X[:, 0] + np.random.default_rng(0).standard_t(1.5, 400)
    for target, said in ((X[:, 0] + np.sin(9 * X[:, 1]), False), (heavy, True)):
        labels = [
            ValidationDisplay.from_estimator(RobustValidation(Ridge(), k=4).fit(X, target), ax=axes()),
            ComparisonDisplay.from_comparison(compare([Ridge()], X, target), kind="risk", ax=axes()),
        ]
        assert [("variance" in one.ax_.get_xlabel()) for one in labels] == [said, said]
