"""Drift in a stream: whether the errors of recent rows are far above those of older ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailproof.core import Array

WINDOW = 1_000  # rows whose errors are compared with older ones
LEVELS = (np.arange(51) + 0.5) / 51  # of the quantiles that stand for the older errors
_MEMORY = 20  # windows after which older errors are forgotten little by little
_FAR_ABOVE = 0.6  # P(recent > older): eleven standard errors of a window above one half
_LARGEST = 1e300


class DriftWarning(UserWarning):
    """Recent rows of a stream are predicted far worse than older ones: what is to be learnt has changed."""


@dataclass(frozen=True)
class Drift:
    """Where errors rose, and how far.

    Attributes
    ----------
    row : int
        The first of the rows given that belongs to the window in which they rose.
    share : float
        Probability that an error of the window exceeds an older one.
    before, after : float
        Median losses.
    """

    row: int
    share: float
    before: float
    after: float


class ErrorMonitor:
    """Compares the losses of every window of rows with those before, by ranks: tails do not matter.

    The probability that a recent loss exceeds an older one is one half where nothing has changed, with a
    standard error of 1/√(12·1000) = 0.009. The losses must come from a model that has not seen their rows.

    Attributes
    ----------
    quantiles : array
        Of the older losses: means of the quantiles of their windows. Empty before the first window.
    windows : int
        How many of them there were since the last drift.
    recent : array
        Losses since the last full window.

    Examples
    --------
    >>> monitor, random = ErrorMonitor(), np.random.default_rng(0)
    >>> monitor.first_rise(random.pareto(1.5, 10_000)) is None
    True
    >>> monitor.first_rise(np.concatenate([random.pareto(1.5, 1_000), 5 * random.pareto(1.5, 1_000)])).row
    1000
    """

    def __init__(self) -> None:
        self.quantiles: Array = np.empty(0)
        self.recent: Array = np.empty(0)
        self.windows = 0

    def first_rise(self, losses: Array) -> Drift | None:
        """The first window whose losses are far above those before; later ones are then not looked at."""
        behind = self.recent.size
        every = np.concatenate([self.recent, np.where(losses < _LARGEST, losses, _LARGEST)])
        full = every.size // WINDOW * WINDOW
        self.recent = every[full:]
        for start in range(0, full, WINDOW):
            drift = self._compare(np.sort(every[start : start + WINDOW]), max(start - behind, 0))
            if drift is not None:
                self.recent = np.empty(0)
                return drift
        return None

    def _compare(self, window: Array, row: int) -> Drift | None:
        """Compare a sorted window with the losses before it, then count it among them."""
        quantiles = np.quantile(window, LEVELS)
        if self.windows:
            sides = [np.searchsorted(window, self.quantiles, side=side) for side in ("left", "right")]
            share = 1.0 - float(np.mean(sides)) / WINDOW
            if share > _FAR_ABOVE:
                middle = LEVELS.size // 2
                drift = Drift(row, share, float(self.quantiles[middle]), float(quantiles[middle]))
                self.quantiles, self.windows = quantiles, 1
                return drift
        else:
            self.quantiles = quantiles
        self.windows += 1
        self.quantiles = self.quantiles + (quantiles - self.quantiles) / min(self.windows, _MEMORY)
        return None
