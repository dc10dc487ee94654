"""Choosing among 10 models under log-normal noise: robust and plain cross-validation; cover of intervals."""

from __future__ import annotations

from functools import partial

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from threadpoolctl import threadpool_limits

from problems import LOGNORMAL_MEAN, SIGMA
from run import Ratio
from tailproof.model_selection import compare, make_robust_scorer, robust_cross_validate, robust_refit

SEEDS, ROWS = 100, 1_000
NOISE_RISK = 0.5 * (np.exp(2 * SIGMA**2) - LOGNORMAL_MEAN**2)  # half the variance of the noise
DEGREES = {"polynomialfeatures__degree": list(range(1, 11))}
PENALTIES = {"alpha": np.logspace(-1, 5, 10).tolist()}
SIGNAL = np.r_[np.ones(5), np.zeros(35)]


def curve(X: np.ndarray) -> np.ndarray:
    return 8 * np.sin(3 * X[:, 0])


def plane(X: np.ndarray) -> np.ndarray:
    return X @ SIGNAL


def degrees(seed: int):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (ROWS, 1))
    test = np.linspace(-1, 1, 1_000)[:, None]
    model = make_pipeline(PolynomialFeatures(include_bias=False), LinearRegression())
    return rng, X, test, curve, model, DEGREES


def penalties(seed: int):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((ROWS, 40)), rng.standard_normal((5_000, 40)), plane, Ridge(), PENALTIES


def trial(problem, seed: int) -> list[float]:
    """True excess risk of each rule's choice, then whether intervals cover."""
    with threadpool_limits(1):
        rng, X, test, truth, model, grid = problem(seed)
        y = truth(X) + rng.lognormal(0, SIGMA, ROWS) - LOGNORMAL_MEAN
        folds = KFold(5, shuffle=True, random_state=seed)
        excess = lambda fitted: float(np.mean((fitted.predict(test) - truth(test)) ** 2) / 2)  # noqa: E731
        search = partial(GridSearchCV, model, grid, cv=folds)
        robust = make_robust_scorer()
        chosen = [search(scoring="neg_mean_squared_error"), search(scoring=robust)]
        chosen.append(search(scoring=robust, refit=robust_refit()))
        found = [excess(one.fit(X, y)) for one in chosen]
        name, values = next(iter(grid.items()))
        models = {str(value): clone(model).set_params(**{name: value}) for value in values}
        table = compare(models, X, y, cv=folds)
        found.append(excess(models[table.names[table.best]].fit(X, y)))
        risks = [robust_cross_validate(m, X, y, cv=folds, return_estimator=True) for m in models.values()]
        true = np.array([np.mean([excess(part) for part in risk.estimators]) for risk in risks])
        covers = np.mean(
            [risk.low <= NOISE_RISK + t <= risk.high for risk, t in zip(risks, true, strict=True)]
        )
        gaps = true - true[table.best]
        paired = (table.difference_low - 1e-12 <= gaps) & (gaps <= table.difference_high + 1e-12)
        others = np.arange(len(gaps)) != table.best
    return [*found, float(covers), float(paired[others].mean())]


def run() -> list[Ratio]:
    ratios = []
    for label, problem in {"degrees": degrees, "ridge penalties": penalties}.items():
        found = np.array(Parallel(n_jobs=2)(delayed(trial)(problem, seed) for seed in range(SEEDS)))
        plain = found[:, 0]
        for j, rule in enumerate(["robust scorer", "robust scorer and refit", "compare"], start=1):
            chosen = found[:, j]
            means, highs = (chosen.mean(), plain.mean()), np.quantile(found[:, [j, 0]], 0.95, axis=0)
            better, worse = np.sum(chosen < plain - 1e-12), np.sum(chosen > plain + 1e-12)
            detail = f"{means[0]:.3g} / {means[1]:.3g}; better in {better}, worse in {worse} of {SEEDS}"
            ratios.append(
                Ratio(f"{label}, {rule} / plain: mean excess", means[0] / means[1], 1.0, detail=detail)
            )
            detail = f"{highs[0]:.3g} / {highs[1]:.3g}"
            ratios.append(Ratio(f"{label}, {rule} / plain: 95%", highs[0] / highs[1], 1.0, detail=detail))
        for j, what in ((4, "risk"), (5, "paired difference")):
            ratios.append(
                Ratio(f"{label}: cover of 95% interval, {what}", found[:, j].mean(), 0.93, at_least=True)
            )
    return ratios
