"""What RobustRegressor gains over least squares on a sample: predicted by residuals, and on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailproof.core import Array
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.estimators.robust_regressor.predicted_gain import PredictedGain, predicted_gain
from tailproof.reports.choice_report import RobustReport

_ROWS = 5_000  # of the sample
_COLUMNS = 200  # at most: a quick look
_LEAST_ROWS = 50
_PLAIN = "untruncated"
_WORTH = 0.1  # of what estimating costs: less is not named
_NOTHING = 0.25  # of it, at most: more may be something


@dataclass(frozen=True)
class Gain:
    """What RobustRegressor gains over least squares, on a sample of the rows.

    Attributes
    ----------
    rows : int
    chosen : str
        The candidate that was chosen.
    difference, low, high : float
        Held-out loss of least squares minus that of the chosen one, in robust mean, with its 95% interval, as
        shares of the loss; minus that of the best truncated one, where least squares was chosen.
    cost : float
        What least squares loses by estimating p parameters from n rows, as a share of the loss: p/n.
    predicted : PredictedGain or None
        Share of that cost which truncation saves, by residuals; None where noise seems to depend on x, and
        where rows are few.
    left_out : int
        Rows that RobustRegressor left out as errors of measurement.
    """

    rows: int
    chosen: str
    difference: float
    low: float
    high: float
    cost: float
    predicted: PredictedGain | None = None
    left_out: int = 0

    @property
    def is_one(self) -> bool:
        """Whether there is one beyond chance: predicted and worth naming, or on held-out rows.

        Held-out rows may refute what residuals promise; then it is not chosen.
        """
        return not self.chosen.startswith(_PLAIN) and (self._is_predicted or self.low > 0)

    @property
    def is_none(self) -> bool:
        """Whether there is hardly any, beyond chance: at most a quarter of what estimating costs."""
        return not self.is_one and self._span()[1] <= _NOTHING

    @property
    def _is_predicted(self) -> bool:
        there = self.predicted
        return there is not None and there.low > 0 and there.share > _WORTH

    def _span(self) -> tuple[float, float]:
        """Limits of the gain, as shares of the cost."""
        if self.predicted is not None:
            return self.predicted.low, self.predicted.most
        return self.low / self.cost, self.high / self.cost

    def sentence(self) -> str:
        """The gain in words."""
        where = f"On {self.rows:,} rows" + f" (without the {self.left_out} left out)" * (self.left_out > 0)
        if self.is_one:
            return f"{where} tailproof.RobustRegressor ({self.chosen}) {self._said()}"
        low, high = self._span()
        if self.is_none:
            most = f"at most {max(high, 0.0):.0%} of what estimating the slopes costs"
            return f"{where} a robust fit gains nothing ({most})."
        between = f"between {low:+.0%} and {high:+.0%} of what estimating the slopes costs"
        return f"{where} no gain of a robust fit shows beyond chance ({between})."

    def _said(self) -> str:
        there, interval = self.predicted, f"{self.low:.2g} to {self.high:.2g}"
        costs = f"estimating the coefficients costs least squares about {self.cost:.2g}"
        if there is None or not self._is_predicted:
            gains = f"gains {self.difference:.2g} of the held-out loss (95% interval {interval})"
            return f"{gains}, by paired validation; {costs} of it."
        return (
            f"gains: residuals predict {there.share:.0%} less squared error of the slopes than least squares "
            f"has (95% interval {there.low:.0%} to {there.high:.0%}). Paired validation, less sharp, says "
            f"{interval} of the held-out loss; {costs} of it."
        )


def measured_gain(X: Array, y: Array) -> Gain | None:
    """What RobustRegressor chooses on a sample, and what least squares loses to it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> measured_gain(X, X.sum(axis=1) + rng.standard_t(3, 200)).is_one
    True
    """
    n = min(len(y), _ROWS)
    if n < _LEAST_ROWS or X.shape[1] > _COLUMNS or not np.isfinite(np.square(np.max(np.abs(y)))):
        return None
    X, y = X[:n], np.asarray(y[:n], dtype=np.float64)
    report = RobustRegressor(random_state=0).fit(X, y).report_
    risk = float(report.risk[report.chosen])
    if not report.folds or not risk > 0:
        return None
    difference, low, high = (_over_least_squares(report) / risk).tolist()
    predicted = predicted_gain(*(np.delete(part, report.glitches, axis=0) for part in (X, y)))
    cost, left_out = (X.shape[1] + 1) / n, int(report.glitches.size)
    return Gain(n, report.candidates[report.chosen], difference, low, high, cost, predicted, left_out)


def _over_least_squares(report: RobustReport) -> Array:
    """Held-out loss of least squares minus that of the chosen one, or of the best other; with its limits."""
    plain = np.array([name.startswith(_PLAIN) for name in report.candidates])
    against = ~plain if plain[report.chosen] else plain
    if not against.any():
        return np.zeros(3)
    best = int(np.argmin(np.where(against, report.difference, np.inf)))
    gap = np.array([report.difference[best], report.low[best], report.high[best]])
    return -gap[[0, 2, 1]] if plain[report.chosen] else gap
