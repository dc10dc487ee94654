"""The claims of section 4.3. Words are given numbers once, here.

"As good" is within a factor of 1.1, "no price in variance" within 1.25, "highly competitive" at least 95% of
the final accuracy, "an order of magnitude less" at most a tenth, "no better than chance" at most a fifth of
the way from chance to bench, "not severely impacted" at least 90% of the accuracy.
"""

from __future__ import annotations

import math

import numpy as np

from tailproof.paper.judging import Claim, Line, Reading, about
from tailproof.paper.measures import COMPARABLE, Measure, quantity
from tailproof.paper.real.data import DATA_SETS
from tailproof.paper.real.settings import CHANCE, FACTORS, NETWORKS, curve, strongest
from tailproof.paper.store import Curves, Methods

ALIKE, COMPETITIVE, MAGNITUDE, NO_BETTER, UNHURT = 1.1, 0.95, 0.1, 0.2, 0.9
_TINY = 1e-12  # spreads of few, equal trials drawn again must not divide by zero


def _mean_losses(methods: Methods, method: str) -> list[float]:
    """Final test loss for each step, mean over the trials."""
    return [methods[curve(method, factor, "test_loss")].at_end("average") for factor in FACTORS]


def _best(methods: Methods, method: str, part: str = "test") -> Curves:
    """Accuracy at the strongest step."""
    return methods[curve(method, strongest(methods, method), f"{part}_accuracy")]


def _accuracy(methods: Methods, method: str) -> float:
    return _best(methods, method).at_end("average")


@quantity
def least_loss_ratio(methods: Methods) -> float:
    """DC-SGD's mean test loss at its best step over bench's at its best."""
    return min(_mean_losses(methods, "DC-SGD")) / min(_mean_losses(methods, "bench"))


@quantity
def best_step_ratio(methods: Methods) -> float:
    """Step of least mean test loss, DC-SGD's over bench's."""
    ours, theirs = (FACTORS[int(np.argmin(_mean_losses(methods, m)))] for m in ("DC-SGD", "bench"))
    return ours / theirs


@quantity
def spread_ratio(methods: Methods) -> float:
    """Largest ratio over the steps of DC-SGD's standard deviation of test loss to bench's."""
    spreads = [
        [methods[curve(m, factor, "test_loss")].at_end("sd") for m in ("DC-SGD", "bench")]
        for factor in FACTORS
    ]
    return max(ours / max(theirs, _TINY) for ours, theirs in spreads)


@quantity
def step_range_ratio(methods: Methods) -> float:
    """How much the mean test loss changes over the steps, DC-SGD's largest over least to bench's."""
    ours, theirs = (_mean_losses(methods, method) for method in ("DC-SGD", "bench"))
    return (max(ours) / min(ours)) / (max(theirs) / min(theirs))


@quantity
def work_ratio(methods: Methods) -> float:
    """Rows a core processes until 95% of bench's final accuracy, DC-SGD's over bench's."""
    level = COMPETITIVE * _accuracy(methods, "bench")

    def work(method: str) -> float:
        curves = _best(methods, method)
        there = np.flatnonzero(curves.over_trials("average") >= level)
        return float(curves.costs[there[0]]) if there.size else math.inf

    return work("DC-SGD") / work("bench")


@quantity
def accuracy_spread_ratio(methods: Methods) -> float:
    """DC-SGD's standard deviation of final test accuracy over bench's, at their strongest steps."""
    ours, theirs = (_best(methods, method).at_end("sd") for method in ("DC-SGD", "bench"))
    return ours / max(theirs, _TINY)


@quantity
def gap_difference(methods: Methods) -> float:
    """Training less test accuracy at the end, DC-SGD's less bench's."""
    ours, theirs = (
        _best(methods, method, "train").at_end("average") - _accuracy(methods, method)
        for method in ("DC-SGD", "bench")
    )
    return ours - theirs


@quantity
def above_chance(methods: Methods, method: str) -> float:
    """Part of the way from chance to bench's accuracy."""
    chance = methods[CHANCE].at_end("average")
    return (_accuracy(methods, method) - chance) / (_accuracy(methods, "bench") - chance)


@quantity
def accuracy_ratio(methods: Methods, method: str, other: str = "bench") -> float:
    """A method's accuracy over another's."""
    return _accuracy(methods, method) / _accuracy(methods, other)


@quantity
def accuracy_across(first: Methods, second: Methods, method: str) -> float:
    """A method's accuracy in the first setting over that in the second."""
    return _accuracy(first, method) / _accuracy(second, method)


@quantity
def cost_ratio(methods: Methods) -> float:
    """Rows that one core of RV-SGDAve processes over those of bench."""
    return float(_best(methods, "RV-SGDAve").costs[-1] / _best(methods, "bench").costs[-1])


EACH = " [each]"  # ends the names of settings whose trials had a start for each sub-process


def _line(where: str, text: str, quantity: str, measure: Measure, low: float, high: float) -> Line:
    """Make a line that is judged from one start, and from a start for each sub-process."""
    apart = Reading("a start for each", measure, low, high, EACH)
    return Line(where, text, quantity, measure, low, high, (apart,))


# fmt: off
_LR, _WORK, _BAR = "4.3 losses_lr", "4.3 acc_percore", "4.3 acc_bar"
_CONVEX = (
    Line(_LR, "DC-SGD gets as good as bench ({first})", "mean test loss at the best steps, DC-SGD / bench",
         least_loss_ratio(), 0, ALIKE),
    Line(_LR, "DC-SGD is at its best with a larger step than bench ({first})", "best step / bench's",
         best_step_ratio(), 2, math.inf),
    Line(_LR, "DC-SGD varies less at every step ({first})", "largest sd of test loss / bench's",
         spread_ratio(), 0, 1),
    Line(_LR, "DC-SGD is less sensitive to the step ({first})",
         "largest over least mean test loss, DC-SGD / bench", step_range_ratio(), 0, 1),
    Line(_WORK, "DC-SGD is highly competitive after a tenth of the work per core ({first})",
         "rows per core to 95% of bench's accuracy / bench's", work_ratio(), 0, MAGNITUDE),
    Line(_WORK, "DC-SGD pays no price in variance ({first})", "sd of test accuracy / bench's",
         accuracy_spread_ratio(), 0, COMPARABLE),
    Line(_WORK, "DC-SGD generalises better ({first})", "training − test accuracy, DC-SGD's less bench's",
         gap_difference(), -math.inf, 0),
)
_NETWORKS = (
    _line(_BAR, "DC-SGD is no better than chance ({})", "way from chance to bench's accuracy",
         above_chance("DC-SGD"), -math.inf, NO_BETTER),
    _line(_BAR, "RV-SGDAve is only slightly below bench ({})", "test accuracy / bench's",
         accuracy_ratio("RV-SGDAve"), UNHURT, math.inf),
    _line(_BAR, "RV-SGDAve does at least as well as DC-SGD ({})", "test accuracy / DC-SGD's",
         accuracy_ratio("RV-SGDAve", "DC-SGD"), 1, math.inf),
)
_HIDDEN_LAYER = _line(
    _BAR, "RV-SGDAve is not severely impacted by a hidden layer ({first})", "test accuracy, FF_L1 / logistic",
    accuracy_across("RV-SGDAve"), UNHURT, math.inf)
_CHEAP = Line("4.3 text", "RV-SGDAve costs a core a small fraction of bench ({first})",
              "rows processed / bench's", cost_ratio(), 0, MAGNITUDE, exact=True)
# fmt: on

REAL_CLAIMS: tuple[Claim, ...] = (
    *about("real-e1", [f"{dataset} logistic" for dataset in DATA_SETS], *_CONVEX),
    *(
        claim
        for dataset in DATA_SETS
        for claim in (
            *about("real-e2", [f"{dataset} {network}" for network in list(NETWORKS)[1:]], *_NETWORKS),
            *about("real-e2", [(f"{dataset} FF_L1", f"{dataset} logistic")], _HIDDEN_LAYER),
            *about("real-e2", [f"{dataset} FF_L1"], _CHEAP),
        )
    ),
)
