"""What bad rows do to every estimator: excess risk by share, place and kind of corruption.

Writes the tables of ``docs/corruption.md``, and judges the promises: up to 1% of bad rows at random within
three times of clean, RobustRegressor up to 5% of the rows with bad features, and nobody worse than the plain
fit.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy import special
from sklearn.linear_model import HuberRegressor, LinearRegression, LogisticRegression
from threadpoolctl import threadpool_limits

import tailproof as tp
from problems import regression
from run import Ratio

ROWS, COLUMNS, DRAWS, TEST_ROWS = 5_000, 10, 7, 5_000
SHARES = (0.001, 0.01, 0.05, 0.2, 0.4)
PLACES = ("at random", "in whole blocks")
WITHIN, NEVER_WORSE = 3.0, 1.25  # times clean; times the plain model, with room for chance
PLAIN = ("LinearRegression", "HuberRegressor", "LogisticRegression")
PAGE = Path(__file__).parents[1] / "docs" / "corruption.md"

Spoil = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], None]


def _targets(value: float, X: np.ndarray, y: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> None:
    y[rows] = value


def _rows(value: float, X: np.ndarray, y: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> None:
    X[rows] = value


def _cells(value: float, X: np.ndarray, y: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> None:
    X[rows, rng.integers(X.shape[1], size=rows.size)] = value


def _labels(X: np.ndarray, y: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> None:
    y[rows] = 1 - y[rows]


FEATURES: dict[str, Spoil] = {
    "rows 1e6": partial(_rows, 1e6),
    "rows 1e12": partial(_rows, 1e12),
    "cells 1e6": partial(_cells, 1e6),
    "cells 1e12": partial(_cells, 1e12),
}
TARGETS: dict[str, Spoil] = {
    f"targets {size}": partial(_targets, float(size)) for size in ("1e3", "1e6", "1e12")
}

# Whole blocks are bad where rows keep their order.
REGRESSORS: dict[str, Callable[[int, bool], object]] = {
    "LinearRegression": lambda seed, mixed: LinearRegression(),
    "HuberRegressor": lambda seed, mixed: HuberRegressor(max_iter=300),
    "RobustRegressor": lambda seed, mixed: tp.RobustRegressor(random_state=seed),
    "DCSGDRegressor": lambda seed, mixed: tp.DCSGDRegressor(random_state=seed, shuffle=mixed),
    "RVSGDRegressor": lambda seed, mixed: tp.RVSGDRegressor(random_state=seed, shuffle=mixed),
    "DivideAndConquer": lambda seed, mixed: tp.DivideAndConquer(LinearRegression(), random_state=seed),
    "RobustValidation": lambda seed, mixed: tp.RobustValidation(LinearRegression(), random_state=seed),
    "RGDRegressor": lambda seed, mixed: tp.RGDRegressor(aggregate="m_estimate", random_state=seed),
}
CLASSIFIERS: dict[str, Callable[[int, bool], object]] = {
    "LogisticRegression": lambda seed, mixed: LogisticRegression(),
    "RobustClassifier": lambda seed, mixed: tp.RobustClassifier(random_state=seed),
    "DCSGDClassifier": lambda seed, mixed: tp.DCSGDClassifier(random_state=seed, shuffle=mixed),
    "RVSGDClassifier": lambda seed, mixed: tp.RVSGDClassifier(random_state=seed, shuffle=mixed),
    "DivideAndConquer": lambda seed, mixed: tp.DivideAndConquer(LogisticRegression(), random_state=seed),
    "RobustValidation": lambda seed, mixed: tp.RobustValidation(LogisticRegression(), random_state=seed),
    "RGDClassifier": lambda seed, mixed: tp.RGDClassifier(aggregate="m_estimate", random_state=seed),
}


@dataclass(frozen=True)
class Study:
    """One task: its estimators, the first of which is plain, kinds of corruption, and what draws rows."""

    name: str
    models: dict[str, Callable[[int, bool], object]]
    kinds: dict[str, Spoil]
    draw: Callable[[int], tuple[np.ndarray, np.ndarray, Callable[[object], float]]]


@dataclass(frozen=True)
class Case:
    """Median over draws of the excess risk of every model, and in how many draws each warned."""

    kind: str
    share: float
    place: str
    risks: np.ndarray
    warned: np.ndarray


def _regression(seed: int) -> tuple[np.ndarray, np.ndarray, Callable[[object], float]]:
    draw = regression("plain", "normal", ROWS, COLUMNS, seed)

    def excess(model: object) -> float:
        final = getattr(model, "estimator_", model)
        gap = np.ravel(final.coef_) - draw.coef
        return 0.5 * float(gap @ gap + np.square(np.ravel(final.intercept_)[0]))

    return draw.X, draw.y, excess


def _classification(seed: int) -> tuple[np.ndarray, np.ndarray, Callable[[object], float]]:
    rng = np.random.default_rng([seed, 1])
    X, test = rng.standard_normal((ROWS, COLUMNS)), rng.standard_normal((TEST_ROWS, COLUMNS))
    weights = np.linspace(-1.0, 1.0, COLUMNS)
    y = (special.expit(X @ weights) > rng.random(ROWS)).astype(int)
    margin = test @ weights

    def excess(model: object) -> float:
        return _log_loss(margin, np.ravel(model.decision_function(test))) - _log_loss(margin, margin)

    return X, y, excess


def _log_loss(truth: np.ndarray, scores: np.ndarray) -> float:
    """Expected log loss of some scores where the truth is known."""
    yes, no = special.expit(truth), special.expit(-truth)
    return float(-np.mean(yes * special.log_expit(scores) + no * special.log_expit(-scores)))


STUDIES = (
    Study("Regression", REGRESSORS, TARGETS | FEATURES, _regression),
    Study("Classification", CLASSIFIERS, {"labels": _labels} | FEATURES, _classification),
)


def _case(study: Study, kind: str, share: float, place: str) -> Case:
    found = [_fits(study, kind, share, place, seed) for seed in range(DRAWS)]
    risks, warned = (np.array(part) for part in zip(*found, strict=True))
    return Case(kind, share, place, np.median(risks, axis=0), warned.sum(axis=0))


def _fits(study: Study, kind: str, share: float, place: str, seed: int) -> tuple[list[float], list[bool]]:
    X, y, excess = study.draw(seed)
    rng = np.random.default_rng([seed, 2])
    count, mixed = round(share * ROWS), place == PLACES[0]
    bad = rng.choice(ROWS, count, replace=False) if mixed else np.arange(count)
    if count:
        study.kinds[kind](X, y, bad, rng)
    risks, warned = [], []
    for make in study.models.values():
        with warnings.catch_warnings(record=True) as said, threadpool_limits(1), np.errstate(all="ignore"):
            warnings.simplefilter("always")
            risks.append(_risk(make(seed, mixed), X, y, excess))
        warned.append(any("populations" in str(one.message) for one in said))
    return risks, warned


def _risk(model: object, X: np.ndarray, y: np.ndarray, excess: Callable[[object], float]) -> float:
    try:
        return excess(model.fit(X, y))
    except ValueError:
        return np.inf


def run() -> list[Ratio]:
    ratios, pages = [], []
    for study in STUDIES:
        clean = _case(study, next(iter(study.kinds)), 0.0, PLACES[0])
        grid = itertools.product(study.kinds, SHARES, PLACES)
        cases = Parallel(n_jobs=2)(delayed(_case)(study, *cell) for cell in grid)
        ratios += _promises(study, clean, cases)
        pages.append(_tables(study, clean, cases))
    head = PAGE.read_text().partition("<!-- tables -->")[0]
    PAGE.write_text(head + "<!-- tables -->\n" + "\n".join(pages))
    return ratios


def _promises(study: Study, clean: Case, cases: list[Case]) -> list[Ratio]:
    """The worst case of each model against its own clean fit, and against the plain model."""
    few = [case for case in cases if case.share <= 0.01 and case.place == PLACES[0]]
    features = [c for c in cases if c.share <= 0.05 and c.place == PLACES[0] and c.kind in FEATURES]
    many = [case for case in cases if case.share > 0.01]
    ratios = []
    for j, name in enumerate(study.models):
        if name in PLAIN:
            continue

        def over_clean(case: Case, j: int = j) -> float:
            return float(case.risks[j] / clean.risks[j])

        def over_plain(case: Case, j: int = j) -> float:
            return float(case.risks[j] / max(case.risks[0], WITHIN * clean.risks[j] / NEVER_WORSE))

        ratios.append(_worst(f"{name}, up to 1% at random, over clean", few, over_clean, WITHIN))
        if name == "RobustRegressor":
            said = f"{name}, features of up to 5% at random, over clean"
            ratios.append(_worst(said, features, over_clean, WITHIN))
        plain = f"{name}, any share and place, over the plain model or 3 times clean"
        ratios.append(_worst(plain, cases, over_plain, NEVER_WORSE))
        ratios.append(_silent(study, j, name, many))
    return ratios


def _silent(study: Study, j: int, name: str, cases: list[Case]) -> Ratio:
    """Bad fits that nobody was warned of; labels that are flipped leave no trace."""
    bad = [case for case in cases if case.kind != "labels" and case.warned[j] < DRAWS]
    named = "; ".join(f"{case.kind}, {100 * case.share:g}% {case.place}" for case in bad[:3])
    return Ratio(f"{name}: cases above 1% without a warning", len(bad), 0, detail=named)


def _worst(name: str, cases: list[Case], figure: Callable[[Case], float], target: float) -> Ratio:
    worst = max(cases, key=figure)
    return Ratio(
        name, float(figure(worst)), target, detail=f"{worst.kind}, {100 * worst.share:g}% {worst.place}"
    )


def _tables(study: Study, clean: Case, cases: list[Case]) -> str:
    lines = [f"## {study.name}", ""]
    heading = "| | " + " | ".join(f"`{name}`" for name in study.models) + " |"
    for place in PLACES:
        lines += [
            f"### Bad rows {place}",
            "",
            heading,
            "|---" * (len(study.models) + 1) + "|",
            _line("clean", clean),
        ]
        lines += [_line(f"{c.kind}, {100 * c.share:g}%", c) for c in cases if c.place == place]
        lines.append("")
    return "\n".join(lines)


def _line(name: str, case: Case) -> str:
    cells = [f"{risk:.2g}{' *' * bool(warned)}" for risk, warned in zip(case.risks, case.warned, strict=True)]
    return f"| {name} | " + " | ".join(cells) + " |"
