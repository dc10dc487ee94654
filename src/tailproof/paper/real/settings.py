"""What a trial of section 4.3 varies and records: networks, steps, methods and the names of curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailproof.paper.store import Methods

NETWORKS = {"logistic": 0, "FF_L1": 1, "FF_L2": 2, "FF_L3": 3}  # hidden layers
FACTORS = (1, 2, 4, 8)  # of the base step
METRICS = ("test_loss", "test_accuracy", "train_accuracy")
REAL_METHODS = ("bench", "DC-SGD", "RV-SGDAve")
CHANCE = "chance"


def curve(method: str, factor: int, metric: str) -> str:
    """Name under which a curve is kept.

    Examples
    --------
    >>> curve("bench", 4, "test_loss")
    'bench x4 test_loss'
    """
    return f"{method} x{factor} {metric}"


def strongest(methods: Methods, method: str) -> int:
    """Return the factor of the step with which a method's mean test accuracy ends highest."""
    return max(FACTORS, key=lambda factor: methods[curve(method, factor, "test_accuracy")].at_end("average"))


@dataclass(frozen=True)
class RealSetting:
    """One data set and one network; ``budgets`` names the curves of a trial, as in other experiments."""

    dataset: str
    network: str
    budgets: Mapping[str, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = [curve(m, f, metric) for m in REAL_METHODS for f in FACTORS for metric in METRICS]
        object.__setattr__(self, "budgets", dict.fromkeys([*names, CHANCE], 0.0))

    @property
    def name(self) -> str:
        """Both, in one word."""
        return f"{self.dataset} {self.network}"
