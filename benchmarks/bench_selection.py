"""Choosing among 10 models under log-normal noise: robust and plain cross-validation; cover of intervals."""

from __future__ import annotations

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
from tailproof.core.validate import paired_differences, paired_winner
from tailproof.model_selection.compare import make_robust_scorer, robust_cross_validate, robust_refit

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
    """True excess risk of each rule's choice, then how often intervals cover."""
    with threadpool_limits(1):
        rng, X, test, truth, model, grid = problem(seed)
        y = truth(X) + rng.lognormal(0, SIGMA, ROWS) - LOGNORMAL_MEAN
        folds = KFold(5, shuffle=True, random_state=seed)
        name, values = next(iter(grid.items()))
        models = [clone(model).set_params(**{name: value}) for value in values]
        scoring = {"plain": "neg_mean_squared_error", "robust": make_robust_scorer()}
        search = GridSearchCV(model, grid, cv=folds, scoring=scoring, refit=False).fit(X, y)
        risks = [robust_cross_validate(one, X, y, cv=folds, return_estimator=True) for one in models]
        losses = np.column_stack([risk.losses for risk in risks])
        best = paired_winner(losses)  # as compare does
        chosen = [np.argmax(search.cv_results_[f"mean_test_{score}"]) for score in scoring]
        chosen += [robust_refit("robust")(search.cv_results_), best]
        excess = lambda fitted: float(np.mean((fitted.predict(test) - truth(test)) ** 2) / 2)  # noqa: E731
        true = np.array([np.mean([excess(part) for part in risk.estimators]) for risk in risks])
        ends = zip(risks, true, strict=True)
        covers = np.mean([risk.low <= NOISE_RISK + own <= risk.high for risk, own in ends])
        gaps, found = true - true[best], paired_differences(losses, best)
        paired = ((found.low <= gaps) & (gaps <= found.high))[np.arange(len(models)) != best].mean()
        return [*(excess(models[j].fit(X, y)) for j in chosen), float(covers), float(paired)]


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
