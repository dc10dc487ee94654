import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import is_classifier
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.reports import svg
from tailproof.reports.choice_report import RobustReport
from tailproof.reports.pages import Grid, Page, Section, number, numbers, render, spans

EVIL = "<script>alert(1)</script>\"'&"
ends = st.floats(-1e12, 1e12)


@given(st.lists(st.tuples(ends, ends, ends), min_size=1, max_size=8), st.booleans())
def test_bars_lie_on_the_axis(values, zero):
    low, middle, high = np.sort(np.array(values), axis=1).T
    for span in spans(middle, low, high, zero=zero):
        assert 0 <= span.left <= 100
        assert 0 <= span.dot <= 100
        assert -1e-9 <= span.width <= 100 - span.left + 1e-9
        assert span.left - 1e-6 <= span.dot <= span.left + span.width + 1e-6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bars_of_what_is_not_finite(value):
    found = spans([1.0, value], [0.0, value], [2.0, value])
    assert all(0 <= span.dot <= 100 for span in found)
    assert spans([value], [value], [value])[0].dot == 100


def test_one_endless_interval_does_not_hide_the_others():
    short, long = spans([1.0, 1.0], [0.0, 0.0], [2.0, 1e9])
    assert short.width > 20
    assert long.cut
    assert not short.cut


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_are_short(value):
    assert 0 < len(number(value)) <= 12


def test_numbers_of_a_column_have_one_style():
    assert numbers([3_556_577.0, -7.382e7, 0.0, np.inf]) == ["3.557e6", "−7.382e7", "0", "∞"]
    assert numbers([3_556_577.0, 0.5]) == ["3,556,577", "0.5"]
    assert numbers([]) == []
    short, long = spans([1e6, 1e8], [0.0, 2e6], [2e6, 2e8])
    assert (short.text, long.text) == ("0 to 2.000e6", "2.000e6 to 2.000e8")


def test_no_curve_strikes_words_through():
    figure = svg.tail_path(tp.diagnose.tails(np.random.default_rng(0).standard_t(3, 500)), "losses")
    ends = [
        max(float(x) for x in re.findall(r"([\d.]+),", line))
        for line in re.findall(r'points="(.*?)"', figure)
    ]
    words = re.findall(r'<text x="([\d.]+)"[^>]*>(?:variance|4th moment)', figure)
    assert len(words) == 2
    assert max(ends) < min(map(float, words))


def test_days_on_an_axis_are_dates():
    days, heights = np.linspace(18_700, 19_400, 5), np.arange(5.0)
    assert ">18,800<" in svg.curve("day", days, heights, (0.0, 4.0))
    shown = re.findall(r">(\d{4}-\d\d-\d\d)<", svg.curve("day", days, heights, (0.0, 4.0), are_days=True))
    assert 2 <= len(shown) <= 5
    assert all("2021-03-14" <= day <= "2023-02-12" for day in shown)


def test_the_last_number_below_an_axis_is_not_cut():
    ends = np.array([2_000.0, 5_200.0])
    figure = svg.against(ends, ends, ends, ends, ("predicted", "actual"))
    width = float(re.search(r'viewBox="0 0 (\d+)', figure)[1])
    below = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle">([\d,]+)</text>', figure)
    assert any(words == "6,000" for _, words in below)
    assert all(float(x) + 3.5 * len(words) <= width for x, words in below)


def test_everything_is_escaped():
    section = Section(EVIL, [EVIL], [], Grid([EVIL], [[EVIL]]), [(EVIL, EVIL)], [EVIL])
    page = render(Page(EVIL, EVIL, [EVIL], [(EVIL, EVIL)], [section]))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 13
    figure = svg.strips({EVIL: [1.0, 2.0]}, EVIL, EVIL)
    assert "<script" not in figure
    rows = np.random.default_rng(0).standard_t(3, 500)
    assert "<script" not in svg.tail_path(tp.diagnose.tails(rows), EVIL)


def test_a_figure_can_stand_alone():
    from xml.etree import ElementTree

    drawn = svg.alone(svg.strips({"a": [0.1, 2.0], "b": [3.0, 4.0]}, "x", "title"))
    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "NaN" not in drawn
    assert "nan" not in drawn


rng = np.random.default_rng(1)
X = rng.standard_normal((400, 3))
LABELS = rng.integers(0, 3, 400)
MODELS = [
    tp.DCSGDRegressor(random_state=0),
    tp.RVSGDRegressor(random_state=0),
    tp.RVSGDRegressor(random_state=0, cross_validate=True),
    tp.DCSGDClassifier(random_state=0),
    tp.RVSGDClassifier(random_state=0),
    tp.RobustRegressor(random_state=0),
    tp.RobustClassifier(random_state=0),
    tp.DivideAndConquer(LinearRegression(), random_state=0),
    tp.RobustValidation(LinearRegression(), random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model)[:40])
def test_every_report_is_a_page(model):
    y = LABELS if is_classifier(model) else X.sum(axis=1) + rng.standard_t(3, 400)
    report = model.fit(X, y).report_
    page = report.to_html()
    assert page.startswith("<!doctype html>")
    assert report.verdict()[0].split("<")[0] in page.replace("&#39;", "'")
    assert "How it was fitted" in page
    if isinstance(report, RobustReport):
        assert type(model).__name__ in page
    assert "http" not in page


def test_figures_with_a_word_in_front_stand_below_figures():
    grid = Grid(("", "a constant"), [("R²", "about 0%"), ("deviance", "below −999%"), ("RMSE", "311.2")])
    html = render(Page("t", "s", ["v"], (), [Section("How good is it?", grid=grid)]))
    assert "<th>a constant</th>" in html
    assert all(f"<td>{figure}</td>" in html for figure in ("about 0%", "below −999%", "311.2"))


def test_options_are_not_cut_at_the_end_of_a_line():
    html = render(Page("t", "", ["Fit: tailproof fit a.csv --target y --date-format %d; <b>--x</b>, a--b"]))
    assert "a.csv <span>--target</span> y <span>--date-format</span> %d; &lt;b&gt;--x&lt;/b&gt;, a--b" in html
