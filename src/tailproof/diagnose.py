"""Is this data heavy-tailed, and what to do about it: target, features, losses and gradients of a pilot."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.utils import indexable

from tailproof.core import Array
from tailproof.core.automatic import blocks_sentence, information_per_row, number_of_blocks
from tailproof.core.losses import LOSSES
from tailproof.core.numerics.meaning import check_are_numbers
from tailproof.core.numerics.quantiles import carriers
from tailproof.core.populations import TwoPopulationsWarning, named, two_populations
from tailproof.core.scaling import robust_columns
from tailproof.core.tails import HEAVY, INFINITE, LIGHT, UNKNOWN, VERDICTS, Tail, tails
from tailproof.estimators.linear.estimators import DCSGDClassifier, DCSGDRegressor
from tailproof.estimators.robust_regressor.majority import bad_leverage
from tailproof.estimators.robust_regressor.measured_gain import Gain, measured_gain
from tailproof.estimators.sklearn_private import safe_indexing
from tailproof.reports.text import Printable, TextTable

_PILOT_ROWS = 50_000
_LARGE = 99.5  # tail index that is no longer told from others
_LEVERAGE_ROWS, _LEVERAGE_COLUMNS = 5_000, 50  # that a search for bad leverage looks at
_MOST_SHOWN = 13  # rows of a printed report
_LEAST_PILOT = 4  # rows, two for each half

_ADVICE = {
    UNKNOWN: "Too few rows, or too few values that differ, to tell.",
    LIGHT: "Light tails: {plain} is fine.",
    HEAVY: (
        "Heavy tails: a few rows decide what {plain} returns. Use {first}DC-SGD with k={k}, "
        "tailproof.{dc}(k={k}), or DivideAndConquer over a linear model, and compare models with "
        "tailproof.model_selection."
    ),
    INFINITE: (
        "Very heavy tails: the variance of the gradients may be infinite, and then the guarantees do not "
        "hold. If it is only large, as for log-normal data, {first}DC-SGD with k={k}, "
        "tailproof.{dc}(k={k}), is still the better choice. {otherwise}"
    ),
}
# What was measured goes first: where there is a gain, though tails do not tell of any; where there is none,
# though they are heavy; and where rows do not tell.
_DESPITE = {
    LIGHT: "Light tails, and yet a robust fit gains.",
    UNKNOWN: "Too few values that differ to tell tails, but a robust fit gains.",
}
_NO_GAIN = {
    HEAVY: "Heavy tails, and yet {plain} is fine: what is heavy, such as features, does not spoil it.",
    INFINITE: (
        "Very heavy tails: the variance of the gradients may be infinite, and then the guarantees do not "
        "hold. And yet {plain} is fine: what is heavy, such as features, does not spoil it."
    ),
}
_UNTOLD = {
    LIGHT: "Light tails: as far as these rows tell, {plain} is fine.",
    HEAVY: (
        "Heavy tails: a few rows can decide what {plain} returns. The safer choice is {first}DC-SGD with "
        "k={k}, tailproof.{dc}(k={k})."
    ),
    INFINITE: (
        "Very heavy tails: the variance of the gradients may be infinite, and then the guarantees do not "
        "hold. The safer choice is {first}DC-SGD with k={k}, tailproof.{dc}(k={k}). {otherwise}"
    ),
}
_REGRESSION = {
    "dc": "DCSGDRegressor",
    "plain": "least squares",
    "first": "tailproof.RobustRegressor(), also by tailproof.fit on files of any size, or ",
    "otherwise": (
        "Consider the logarithm of a positive target, or loss='huber' or 'absolute_error': they have "
        "gradients of finite variance, but estimate something else than the mean."
    ),
}
_CLASSIFICATION = {
    "dc": "DCSGDClassifier",
    "plain": "the usual loss",
    "first": "",
    "otherwise": (
        "Consider logarithms or ranks of the features with the heaviest tails: here it is they that make "
        "gradients large."
    ),
}
_NO_PROBABILITIES = (
    "The pilot gives no probabilities, so that there are no losses to look at: give an estimator with "
    "predict_proba, or none."
)
_OUTLYING = "{}. Look at these rows first: if they are errors, leave them out and diagnose again."
_LOSSES = (
    " The variance of the losses may be infinite. Where it is, the intervals of risks, though longer "
    "for it, cover less often than they say (at 95%, in 67% to 78% of samples): rely on the paired "
    "differences of tailproof.model_selection.compare instead."
)


@dataclass(frozen=True, eq=False, repr=False)
class TailReport(Printable):
    """What :func:`diagnose` found; prints as a table with the recommendation.

    Attributes
    ----------
    target : Tail or None
        None for classification.
    features : dict of str to Tail
        Numeric columns that are not constant; missing values left out.
    losses, gradients : Tail or None
        Of the pilot, on rows that it did not see; gradients are norms in scaled coordinates. None for
        classifiers without probabilities.
    verdict : str
        That of the gradients, which decide whether robust learning pays.
    k, why_k : int, str
        Blocks that DC-SGD would take, and what decided it.
    recommendation : str
        In plain language.
    gain : Gain or None
        Of RobustRegressor over least squares, measured on a sample; None for classification, for a pilot of
        your own, and for very few rows or very many columns.
    outlying : str or None
        What there is to say about rows of another population than the others.
    outlying_rows : array of int
        Which they are, among the rows that the pilot saw.
    carriers : array of int
        The few rows that carry half of the pilot's losses, the largest first; none where many do.
    leverage : array of int or None
        Rows far from the others in their features and off what the majority predicts for them, where there
        are several: errors, or another population. Looked for in regressions, among up to 5,000 rows.
    """

    target: Tail | None
    features: dict[str, Tail]
    losses: Tail | None
    gradients: Tail | None
    verdict: str
    k: int
    recommendation: str
    why_k: str = ""
    leverage: NDArray[np.intp] | None = None
    gain: Gain | None = None
    outlying: str | None = None
    outlying_rows: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    carriers: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def rows(self) -> list[dict[str, Any]]:
        """One record for each sample that was looked at; the features heaviest first."""
        heaviest = sorted(self.features.items(), key=lambda item: -item[1].moment.gamma)
        samples = [("target", self.target), ("losses", self.losses), ("gradients", self.gradients)]
        samples += [(f"feature {name}", tail) for name, tail in heaviest]
        return [_record(name, tail) for name, tail in samples if tail is not None]

    def as_text(self) -> TextTable:
        """The heaviest tails, and the recommendation."""
        rows = self.rows()
        left = len(rows) - _MOST_SHOWN
        more = [f"... and {left} features with lighter tails"] if left > 0 else []
        return TextTable.of(rows[:_MOST_SHOWN], [*more, "", self.recommendation, *self._blocks_said()])

    def _blocks_said(self) -> list[str]:
        """What k is, where it is recommended."""
        return [blocks_sentence(self.k, self.why_k)] if self.verdict in (HEAVY, INFINITE) else []


def diagnose(X: Any, y: Any, estimator: Any = None, *, delta: float = 0.05) -> TailReport:
    """Report the tails of target, features, and losses and gradients of a quick pilot fit.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
        Columns that are not numeric are left out, unless an estimator is given that takes them.
    y : array-like of shape (n_samples,)
        Classes if the estimator is a classifier; without one, if not numeric or of two values.
    estimator : estimator, optional
        The pilot; default DC-SGD. It is fitted on each half of up to 50,000 rows, to predict the other.
    delta : float
        One minus the confidence that the recommended k is for.

    Returns
    -------
    TailReport

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((5_000, 3))
    >>> found = diagnose(X, X[:, 0] + rng.standard_t(3, 5_000))
    >>> found.verdict, found.features["0"].verdict, found.k
    ('heavy', 'light', 96)
    """
    if estimator is not None and not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        raise TypeError(f"estimator must be one with fit and predict, or None; got {estimator!r}")
    X, y = indexable(X, _target(y))
    columns = _numeric_columns(X)
    classes = _is_classification(y, estimator)
    rows = np.random.default_rng(0).permutation(len(y))[:_PILOT_ROWS]
    matrix = _filled(columns, len(y))[rows]
    seen = matrix if estimator is None else safe_indexing(X, rows)
    with warnings.catch_warnings():
        # The report says it.
        warnings.simplefilter("ignore", TwoPopulationsWarning)
        losses, slopes = _pilot(seen, y[rows], estimator, classes)
        gain = None if classes or estimator is not None else measured_gain(matrix, y[rows])
    apart = two_populations(matrix, None if classes else np.asarray(y[rows], dtype=np.float64))
    outlying = apart.sentence(numbers=rows)
    gradients = None if slopes is None else tails(slopes * _lengths(matrix))
    verdict = UNKNOWN if gradients is None else gradients.verdict
    # Few rows decide a plain fit where they lie far from all others, whatever the tails of the others.
    verdict = HEAVY if apart.gaps and verdict in (UNKNOWN, LIGHT) else verdict
    few = np.empty(0, dtype=np.intp) if losses is None else rows[carriers(losses)]
    k, why = _blocks(y, matrix.shape[1], classes, delta)
    seen_losses = None if losses is None else tails(losses)
    looked_at = rows[:_LEVERAGE_ROWS]
    leverage = None if classes else _bad_leverage(matrix[:_LEVERAGE_ROWS], y[looked_at], looked_at)
    advice = _advice(verdict, seen_losses, k, classes, len(y), outlying, gain, few)
    return TailReport(
        target=None if classes else tails(np.asarray(y, dtype=np.float64)),
        features={name: tails(column[~np.isnan(column)]) for name, column in columns.items()},
        losses=seen_losses,
        gradients=gradients,
        verdict=verdict,
        k=k,
        recommendation=" ".join([*_leverage_said(leverage, looked_at.size), advice]),
        why_k=why,
        leverage=leverage,
        gain=gain,
        outlying=outlying,
        outlying_rows=np.sort(rows[apart.rows]),
        carriers=few,
    )


def _bad_leverage(matrix: Array, y: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    if matrix.shape[1] > _LEVERAGE_COLUMNS:
        return np.empty(0, dtype=np.intp)
    return np.sort(rows[bad_leverage(matrix, np.asarray(y, dtype=np.float64))])


def _leverage_said(leverage: NDArray[np.intp] | None, looked_at: int) -> list[str]:
    if leverage is None or leverage.size == 0:
        return []
    first = ", ".join(map(str, leverage[:5].tolist())) + ", ..." * (leverage.size > 5)
    return [
        f"{leverage.size / looked_at:.1%} of the rows (counted from 0: {first}) are far from the others in "
        "their features and off what the others predict for them: high leverage, which no method for heavy "
        "tails withstands. If they are errors, RobustRegressor(contamination=...) fits the others; if they "
        "are real, one linear model does not fit both."
    ]


def _blocks(y: NDArray[Any], d: int, classes: bool, delta: float) -> tuple[int, str]:
    """Blocks that DC-SGD would take, and why."""
    outputs = np.unique(y).size if classes else 1
    loss = LOSSES["log_loss" if classes else "squared_error"]
    target = y if classes else np.asarray(y, dtype=np.float64)
    parameters = max(outputs - 1, 1) * (d + 1)
    information = information_per_row(loss, target)
    return number_of_blocks("auto", delta, len(y), parameters - 1, "dc", loss, information)


def _advice(
    verdict: str,
    losses: Tail | None,
    k: int,
    classes: bool,
    n: int,
    outlying: str | None,
    gain: Gain | None,
    few: NDArray[np.intp],
) -> str:
    words = _CLASSIFICATION if classes else _REGRESSION
    sentences = [] if outlying is None else [_OUTLYING.format(outlying[0].upper() + outlying[1:])]
    if losses is None and n >= _LEAST_PILOT:
        return " ".join([*sentences, _NO_PROBABILITIES])
    template = _ADVICE[verdict] if gain is None else _advice_with(gain, verdict)
    sentences.append(template.format(k=k, **words))
    sentences += [] if gain is None else [gain.sentence()]
    several = "s" * (few.size > 1)
    sentences += [f"Half of the pilot's losses come from row{several} {named(few)}."] if few.size else []
    return " ".join(sentences) + (_LOSSES if losses is not None and losses.verdict == INFINITE else "")


def _advice_with(gain: Gain, verdict: str) -> str:
    """What tails advise, unless what was measured says otherwise."""
    instead = _DESPITE if gain.is_one else _NO_GAIN if gain.is_none else _UNTOLD
    # Rows that were left out decide what least squares returns, whatever the others gain.
    return _ADVICE[verdict] if gain.left_out else instead.get(verdict, _ADVICE[verdict])


def _target(y: Any) -> NDArray[Any]:
    """One value a row; numbers that came as objects are numbers."""
    check_are_numbers(y=y)
    y = np.asarray(y)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(f"y must be one-dimensional; got shape {y.shape}: diagnose one output at a time")
    return y.astype(np.float64) if y.dtype == object and all(isinstance(v, Real) for v in y) else y


def _is_classification(y: NDArray[Any], estimator: Any) -> bool:
    kinds, counts = np.unique(y, return_counts=True)
    if estimator is None and y.dtype.kind in "fiu" and (len(kinds) != 2 or counts.min() < 2):
        return False
    if estimator is not None and not is_classifier(estimator):
        return False
    if len(kinds) < 2 or counts.min() < 2:
        rarest = kinds.tolist()[counts.argmin()]
        raise ValueError(
            "y needs at least two classes with at least two rows each, one for each half of the pilot; "
            f"class {rarest!r} has {counts.min()} of {len(y)} rows"
        )
    return True


def _numeric_columns(X: Any) -> dict[str, Array]:
    """FeatureScale of numbers that vary, by name or position."""
    X = X.tocsc() if sparse.issparse(X) else X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2:
        raise ValueError(f"X must be two-dimensional; got shape {X.shape}")
    given = [str(name) for name in getattr(X, "columns", range(X.shape[1]))]
    names = [name if given.count(name) == 1 else f"{name} ({j})" for j, name in enumerate(given)]
    columns: dict[str, Array] = {}
    for j, name in enumerate(names):
        column = X[:, [j]].toarray().ravel() if sparse.issparse(X) else safe_indexing(X, j, axis=1)
        values = _values(column)
        if values.dtype.kind in "fiub" and np.unique(values[~np.isnan(values.astype(float))]).size > 1:
            columns[name] = values.astype(np.float64)
    return columns


def _values(column: Any) -> NDArray[Any]:
    """As an array; numbers of pandas that may be missing are objects otherwise."""
    values = np.asarray(column)
    if values.dtype == object and getattr(getattr(column, "dtype", None), "kind", "O") in "fiub":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return values


def _filled(columns: dict[str, Array], n: int) -> Array:
    """The columns side by side, missing values replaced by medians."""
    if not columns:
        return np.zeros((n, 1))
    return np.column_stack([np.where(np.isnan(u), np.nanmedian(u), u) for u in columns.values()])


def _pilot(X: Any, y: NDArray[Any], estimator: Any, classes: bool) -> tuple[Array | None, Array | None]:
    """Losses and sizes of their slopes, on rows that the pilot did not see."""
    if len(y) < _LEAST_PILOT:
        return None, None
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

    if not classes:
        model = DCSGDRegressor(random_state=0) if estimator is None else clone(estimator)
        predicted = cross_val_predict(model, X, y, cv=KFold(2, shuffle=True, random_state=0))
        target = np.asarray(y, dtype=np.float64)
        loss = LOSSES["squared_error"]
        return loss.value(predicted, target), np.abs(loss.slope(predicted, target))
    model = DCSGDClassifier(random_state=0) if estimator is None else clone(estimator)
    if not hasattr(model, "predict_proba"):
        return None, None
    halves = StratifiedKFold(2, shuffle=True, random_state=0)
    shares = cross_val_predict(model, X, y, cv=halves, method="predict_proba")
    of_label = shares[np.arange(len(y)), np.unique(y, return_inverse=True)[1]]
    return -np.log(np.maximum(of_label, np.finfo(of_label.dtype).eps)), 1 - of_label


def _lengths(matrix: Array) -> Array:
    """‖(1, z)‖ of every row, z being the features in robust scales."""
    scales = robust_columns(matrix)
    return np.sqrt(1 + (((matrix - scales.centre) / scales.scale) ** 2).sum(axis=1))


def _record(name: str, tail: Tail) -> dict[str, Any]:
    return {
        "of": name,
        "verdict": tail.verdict,
        "tail index": _short(tail.moment.alpha),
        "90% interval": f"{_short(_inverse(tail.moment.high))} to {_short(_inverse(tail.moment.low))}",
        "Hill": _short(tail.hill.alpha),
        "max/sum of squares": f"{tail.max_to_sum[1]:.1%}",
        "block spread": tail.block_spread,
        "zeros": f"{tail.zeros:.0%}",
    }


def _short(alpha: float) -> str:
    """A tail index to two digits; the large ones mean no more than that they are large."""
    return ">100" if _LARGE < alpha < float("inf") else f"{alpha:.2g}"


def _inverse(gamma: float) -> float:
    return 1 / gamma if gamma > 0 else float("inf")


__all__ = ["VERDICTS", "Gain", "Tail", "TailReport", "diagnose", "measured_gain", "tails"]
