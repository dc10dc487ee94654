"""The pages: what they say, and what a browser makes of them."""

import dataclasses
import html
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import cross_val_predict

import tailproof as tp
from browser import browser, look, needs_chromium, requests_of
from tailproof.cli import pages
from tailproof.cli.pages import rows_of_blocks
from tailproof.core.algorithms import FAR
from tailproof.diagnose import VERDICTS, diagnose
from tailproof.reports.pages import number, percent, render
from tailproof.tables.model import CLASSIFICATION, REGRESSION, fit_table, prepare
from tailproof.tables.quality import _PLAIN, _SENTENCES, Drivers, drivers_of, measured

EVIL = "<script>alert(1)</script>"
rng = np.random.default_rng(0)
N = 1200
A, B = rng.standard_normal(N), rng.standard_normal(N)
COST = A + 2 * B + rng.standard_t(2.5, N)
COST[:7] += 200  # the block that holds them stands out
TABLE = pa.table(
    {
        EVIL: A,
        "b": B,
        "shade": np.array(["red", EVIL, "blue"])[rng.integers(0, 3, N)],
        "cost": COST,
        "kind": np.array(["u", "v", "w"])[
            np.argmax(rng.standard_normal((N, 3)) + A[:, None] * [1, 0, -1], axis=1)
        ],
    }
)
CODE = [("Shell", f"tailproof fit '{EVIL}'")]


def fitted_page(method, target="cost"):
    rows = prepare(TABLE, target, leave_out=[{"cost": "kind", "kind": "cost"}[target]])
    estimator = fit_table(rows, method, {"random_state": 0}).estimator
    answers = measured(rows, estimator, 0), drivers_of(rows, estimator)
    return render(pages.fit_page(rows, estimator, diagnose(rows.X, rows.y), CODE, "data.csv", *answers))


def compared_page():
    rows = prepare(TABLE, "cost", leave_out=["kind"])
    models = {"line": LinearRegression(), EVIL: DummyRegressor(), "dc": tp.DCSGDRegressor(random_state=0)}
    found = tp.model_selection.compare(models, rows.X, rows.y)
    tails = diagnose(rows.X, rows.y)
    return render(pages.compare_page(rows, found, "squared_error", tails, CODE, "data.csv"))


def first_screens():
    """Text above the first section, and all sentences that may stand there."""
    for page in (fitted_page("auto"), fitted_page("dc", "kind")):
        yield html.unescape(re.sub(r"<[^>]*>", " ", page.split("<main>")[1].split("<section")[0]))
    yield from pages._TAILS_SAID.values()
    scores = {"median_error": 1.0, "mae": 1.0, "lift": 2.0, "gini": 0.1, "auc": 0.8}
    for own, other in ((0.5, 0.1), (0.1, 0.5), (0.5, 0.5), (0.496, 0.504), (-0.1, 0.0)):
        measures = [f"{who}{what}" for what in ("r2", "accuracy") for who in ("constant_", "plain_", "")]
        values = scores | dict(zip(measures, (0.0, other, own) * 2, strict=True))
        counts = values | {name.replace("r2", "deviance_explained"): values[name] for name in measures[:3]}
        for task, told in ((REGRESSION, values), (REGRESSION, counts), (CLASSIFICATION, values)):
            for plain, _ in _PLAIN.values():
                yield from _SENTENCES[task](told, plain, True)
    yield Drivers(np.arange(2), 1000, np.zeros(2)).sentence()
    yield Drivers(np.arange(1), 1000, np.zeros(1)).sentence()


EVERYDAY = """
a about all always an are as average be best better by class columns cost csv data day days do does drive
drives each easier error ever every explains few fit follows frequent from good half handful hard has
heavy highest how in index infinite is it its kind know learn light logarithm many may mean model more
most naming no not number numbers of on or order ordinary others out positive predictions predicts result
right row rows size so squared such task tell tenth than that the their theirs them there these they times to
too trust usual variation well which with worse would
"""


def test_every_word_of_the_first_screen_is_everyday_english_or_in_the_glossary():
    glossary = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
    known = " ".join(re.findall(r"^\*\*(.+)\*\*$", glossary, re.MULTILINE)).lower()
    words = {word for text in first_screens() for word in re.findall(r"[a-z][a-z-]*", text.lower())}
    unknown = words - set(EVERYDAY.split()) - set(re.findall(r"[a-z][a-z-]*", known)) - {"tailproof"}
    assert unknown == set()


def demo_page():
    excess = {"LinearRegression": [0.5, 3.0, 0.9], "DC-SGD": [0.1, 0.2, 0.3]}
    return render(pages.demo_page(excess, dict.fromkeys(excess, 0.5), "words", "tailproof demo"))


PAGES = {
    "auto": lambda: fitted_page("auto"),
    "dc": lambda: fitted_page("dc"),
    "rv": lambda: fitted_page("rv"),
    "classes": lambda: fitted_page("dc", "kind"),
    "compare": compared_page,
    "demo": demo_page,
}
# What each page has to show.
HEADINGS = {
    "auto": [
        "How good is it?",
        "Which rows drive the result?",
        "Details",
        "Candidates",
        "How heavy are the tails?",
        "Spread of the candidates",
        "Blocks that stand out",
    ],
    "dc": [
        "Is it right on average?",
        "Which columns matter?",
        "Details",
        "Spread of the candidates",
        "Candidates around the merged model",
        "Coefficients",
        "Columns",
    ],
    "rv": ["Candidates on the validation rows", "Coefficients", "How to reproduce it"],
    "classes": [
        "How good is it?",
        "Which classes are confused?",
        "Spread of the candidates",
        "Coefficients",
        "How it was fitted",
    ],
    "compare": ["Models, best first", "How heavy are the tails?", "How to reproduce it"],
    "demo": ["Excess risk", "How to reproduce it"],
}


@pytest.fixture(scope="module")
def rendered():
    return {name: make() for name, make in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_needs_nobody(rendered, name):
    page = rendered[name]
    found = re.findall("<h2>(.*?)</h2>", page)
    assert [heading for heading in HEADINGS[name] if heading not in found] == []
    assert "<script" not in page
    assert "http" not in page
    assert not re.search(r"\bnan\b", page)
    assert page.index('class="verdict"') < page.index("<h2>")


def test_the_block_with_the_far_rows_is_named(rendered):
    section = rendered["dc"].split("Blocks that stand out")[1]
    assert "more than three majority radii away" in section
    assert re.search(r">[^<]*\b[1-7] \(cost = (19|20)\d", section)


def test_rows_of_blocks_are_those_of_the_fit():
    rows = prepare(TABLE, "cost", leave_out=["kind"])
    model = tp.DCSGDRegressor(random_state=3, k=24).fit(rows.X, rows.y)
    blocks = rows_of_blocks(model, rows.X)
    assert [block.size for block in blocks] == model.report_.block_sizes.tolist()
    assert sorted(np.concatenate(blocks)) == list(range(N))
    hit = {j for j, block in enumerate(blocks) if np.any(block < 7)}
    assert set(model.report_.stand_out.tolist()) <= hit
    assert model.report_.stand_out.size


def test_the_verdict_of_a_comparison_says_what_chance_allows():
    rows = prepare(TABLE.slice(10), "cost", leave_out=["kind"])
    models = {"line": LinearRegression(), "same": LinearRegression(), "constant": DummyRegressor()}
    found = tp.model_selection.compare(models, rows.X, rows.y)
    said = " ".join(pages.comparison_verdict(found, "squared_error"))
    risk = float(found.risk[found.best])
    assert f"half the squared error, is {number(risk)}, an error of about {number((2 * risk) ** 0.5)}" in said
    assert "line predicts best" in said
    assert "cannot tell it from same" in said
    share = float(found.difference[found.names.index("constant")]) / risk
    assert f"better than constant (by {percent(share)})" in said


def test_a_loss_whose_zero_means_nothing_has_no_percentages():
    X, y = A[:, None], np.random.default_rng(1).poisson(np.exp(A)).astype(float)
    models = {"line": PoissonRegressor(alpha=0.0), "constant": DummyRegressor()}
    found = tp.model_selection.compare(models, X, y, loss="poisson", mean="mean")
    *_, last = pages.comparison_verdict(found, "poisson")
    gap = float(found.difference[1])
    assert last == (
        f"It is better than constant (by {number(gap)}), beyond chance. "
        "Twice such a difference is one of mean deviance."
    )
    deviance = [mean_poisson_deviance(y, cross_val_predict(model, X, y)) for model in models.values()]
    assert 2 * gap == pytest.approx(deviance[1] - deviance[0], rel=0.02)


def test_no_interval_of_a_loss_begins_below_zero():
    found = tp.model_selection.compare(
        {"constant": DummyRegressor()}, A[:60, None], rng.standard_t(1.2, 60) ** 3, delta=0.01
    )
    assert found.rows()[0]["low"] == 0


def test_the_cloud_and_the_table_tell_one_story():
    rows = prepare(TABLE, "cost", leave_out=["kind"])
    model = tp.DCSGDRegressor(random_state=3, k=24).fit(rows.X, rows.y)
    figure = pages.cloud_section(model, False).figures[0]
    dots = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="4.0" class="(dot|far)"', figure)
    edge = 170 - 14
    away = [np.hypot(float(x) - 170, float(y) - 170) / edge * FAR for x, y, _ in dots]
    wanted = np.minimum(model.report_.distances / model.report_.radius, FAR)
    np.testing.assert_allclose(away, wanted, atol=0.01)
    assert [kind == "far" for *_, kind in dots] == (wanted == FAR).tolist()
    assert sum(kind == "far" for *_, kind in dots) == model.report_.stand_out.size


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_page_says_how_heavy_the_tails_are_and_gives_no_late_advice(verdict):
    rows = prepare(TABLE, "cost", leave_out=["kind"])
    estimator = tp.DCSGDRegressor(random_state=0, k=5).fit(rows.X, rows.y)
    tails = dataclasses.replace(diagnose(rows.X, rows.y), verdict=verdict, recommendation="Use another one.")
    page = pages.fit_page(rows, estimator, tails, CODE, "")
    assert "tails are" in page.verdict[-1]
    assert "Use another one." not in render(page)


# What belongs to the method, and so under "Details".
METHOD = r"candidate|block|gradient|merge|truncat|robust risk|\bk=|delta|δ|majority|pass(es)?\b"


@pytest.mark.parametrize("name", ["auto", "dc", "rv", "classes"])
def test_the_first_screen_has_no_words_of_the_method(rendered, name):
    first, details = rendered[name].split("<h2>Details</h2>")
    top = first.split("<main>")[1].split("<h2>")[0]
    assert re.search(METHOD, top) is None, re.search(METHOD, top)
    assert re.search("candidate", details)


def test_in_a_browser(rendered, tmp_path):
    needs_chromium()
    with browser(tmp_path / "profile") as driver:
        for name, page in rendered.items():
            path = tmp_path / f"{name}.html"
            path.write_text(page, encoding="utf-8")
            driver.get(path.as_uri())
            for dark in (False, True):
                for width in (1200, 380):
                    look(driver, dark, width)
                    check(driver, name, dark, width)
            look(driver, True, 700, media="print")  # a sheet of A4 between its margins
            check(driver, name, False, "print")
            assert [entry["message"] for entry in driver.get_log("browser")] == [], name
            foreign = [url for url in requests_of(driver) if not url.startswith(("file:", "data:", "chrome"))]
            assert foreign == [], name


def check(driver, name, dark, width):
    seen = driver.execute_script("""
        const boxes = [...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect());
        const ink = getComputedStyle(document.body);
        return {
            wide: document.documentElement.scrollWidth - window.innerWidth,
            cut: matchMedia('print').matches ? [...document.querySelectorAll('.scroll')]
                .filter(e => e.scrollWidth > e.clientWidth + 1).length : 0,
            figures: boxes.map(b => [b.width, b.height]),
            bars: [...document.querySelectorAll('.track b')]
                .filter(e => e.getBoundingClientRect().height < 5).length,
            paper: ink.backgroundColor, color: ink.color,
        }""")
    where = (name, dark, width, seen)
    assert seen["wide"] <= 0, where
    assert seen["cut"] == 0, where
    assert all(w > 200 and h > 100 for w, h in seen["figures"]), where
    assert len(seen["figures"]) >= 1, where
    assert seen["bars"] == 0, where
    brightness = [sum(map(int, re.findall(r"\d+", seen[key])[:3])) for key in ("paper", "color")]
    assert (brightness[0] < brightness[1]) is dark, where
