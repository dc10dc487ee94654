"""Every qualitative claim of sections 4.1 and 4.2, from the discussion paragraphs and the captions.

``CLAIMS`` lists them. Words are given numbers once, here: "comparable" is within a factor of 1.25 on the bad
side, "near-identical" within 1.1 on both sides, "a few passes" at most 5, "far less" at most a third, "a
small fraction" at most a fifth, "a small hit" at most a factor of 2, "volatile" and "not even near" at least
a factor of 2, and noise is "ironed out" where at most half of the standard deviation is left. Curves that
cannot be told apart on the scale of a figure are within a hundredth of the excess risk of the start.
Other readings of the paper stand beside the default one: RGD-M scaled by the standard deviation, a start for
each sub-process, the other merges, the other estimators of Valid, 10 passes for "a few", and the scale of the
figure; where they disagree, the verdict depends on the reading.
Lines without a range are no claims of the paper but measurements that tell why a claim holds or fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tailproof.paper import experiments as ex
from tailproof.paper.judging import Claim, Line, Reading, about
from tailproof.paper.measures import (
    COMPARABLE,
    ROBUST,
    VISIBLE,
    Measure,
    Rivals,
    across,
    cost_share,
    end_ratio,
    lead_growth,
    over_start,
    passed_on,
    passes_to_match,
    passes_until_invisible,
    same_progress,
    seconds_across,
    seconds_lead_growth,
    seconds_ratio,
    visible_gap,
    width_ratio,
)
from tailproof.paper.simulated import LEVELS, NOISES

MANY_PASSES = 10.0  # a wider reading of "a few"
ALIKE, FEW_PASSES, FAR_LESS, SMALL_PART, SMALL_HIT, VOLATILE, IRONED = 1.1, 5.0, 1 / 3, 0.2, 2.0, 2.0, 0.5
_NEAR_D, _FAR_D = ex.SHOWN[0], ex.SHOWN[-1]
_POC, _DIM, _ROWS = "4.1 Figs 2-3", "4.1 Fig 4", "4.1 Fig 5"
_RV_POC, _RV_DIM = "4.2 Figs 9-11", "4.2 Fig 12"
_INF = math.inf
_BY_D = {noise: [f"{noise} d={d}" for d in ex.SHOWN] for noise in NOISES}
_NEAR_FAR = {noise: (f"{noise} d={_NEAR_D}", f"{noise} d={_FAR_D}") for noise in NOISES}
_ALL_LEVELS = [f"{noise} {level}" for noise in NOISES for level in LEVELS[noise]]


_DC_READINGS = tuple(name.partition("[")[2][:-1] for name in ex.DC_READINGS if name.startswith("DC-SGD"))
_SCALES, _VALIDS = ex.SCALES[1:], (*ex.SCALES[1:], *ex.RV_READINGS)


def _read(name: str, reading: str) -> str:
    """Name of a method under a reading; the default reading has no name."""
    return f"{name} [{reading}]" if reading else name


def _line(
    where: str,
    text: str,
    quantity: str,
    of: Callable[..., Measure],
    low: float,
    high: float,
    *more: Reading,
    readings: Iterable[str] = _DC_READINGS,
    rivals: Rivals = (),
    along: str = "",
) -> Line:
    """Make a line with its readings, from the quantity as a function of a reading and of rivals.

    ``along`` is a reading that is also judged together with RGD-M scaled by the standard deviation.
    """
    readings_of_line = [Reading(ex.SPELLED.get(name, name), of(name, rivals), low, high) for name in readings]
    if "RGD-M" in rivals:
        by_sd = tuple(_read(name, "sd") if name == "RGD-M" else name for name in rivals)
        readings_of_line.append(Reading("RGD-M by sd", of("", by_sd), low, high))
        if along:
            readings_of_line.append(Reading(f"{along} with RGD-M by sd", of(along, by_sd), low, high))
    return Line(where, text, quantity, of("", rivals), low, high, (*readings_of_line, *more))


def _end(name: str, statistic: str = "median") -> Callable[..., Measure]:
    return lambda reading, rivals: end_ratio(_read(name, reading), rivals, statistic)


def _on_figure(name: str, rivals: Rivals, statistic: str = "average") -> Reading:
    return Reading("figure scale", visible_gap(name, rivals, statistic), -_INF, VISIBLE)


def _passes(statistic: str) -> Callable[..., Measure]:
    return lambda reading, rivals: passes_to_match(_read("DC-SGD", reading), statistic, rivals)


# fmt: off
_FEW = "A few passes are enough for DC-SGD to match the best RGD method"
_INVISIBLE = "passes until its average is within a hundredth of the start's"
_SC_E1 = about(
    "sc-e1", NOISES,
    *(_line(_POC, f"{_FEW} {name} ({{}})", "passes until within 1.25 of its end",
            _passes(statistic), 0, FEW_PASSES,
            Reading("at most 10 passes", passes_to_match("DC-SGD", statistic), 0, MANY_PASSES), rivals=ROBUST)
      for statistic, name in (("average", "on average"), ("sd", "in standard deviation"))),
    _line(_POC, _FEW + " on the scale of the figure ({})", _INVISIBLE,
          lambda reading, rivals: passes_until_invisible(_read("DC-SGD", reading), rivals), 0, FEW_PASSES,
          Reading("at most 10 passes", passes_until_invisible("DC-SGD"), 0, MANY_PASSES), rivals=ROBUST),
    Line("why", "The same without any noise: descent with DC-SGD's steps ({})", _INVISIBLE,
         passes_until_invisible("true SGD")),
    _line(_POC, "DC-SGD is comparable to RGD in the end ({})", "average / best RGD's",
          _end("DC-SGD", "average"), 0, COMPARABLE, _on_figure("DC-SGD", ROBUST), rivals=ROBUST),
    _line(_POC, "DC-SGD gets there with far less computation ({})",
          "its cost / least cost of an RGD method, to the same level",
          lambda reading, rivals: cost_share(_read("DC-SGD", reading), rivals), 0, FAR_LESS, rivals=ROBUST),
    Line(_POC, "The sub-processes are very noisy: SGD is volatile ({})", "SGD's sd at the end / DC-SGD's",
         end_ratio("SGD", ("DC-SGD",), "sd"), VOLATILE, _INF),
    Line("why", "DC-SGD beside RGD-MoM alone, which splits as it does ({})", "average at the end / RGD-MoM's",
         end_ratio("DC-SGD", ("RGD-MoM",), "average")),
    Line("why", "Optimisation error in what RGD ends with ({})",
         "true GD's average at the end / the best RGD's", end_ratio("true GD", ROBUST, "average")),
)

def _rival_readings(rival: str) -> tuple[Reading, ...]:
    """DC-SGD's other readings, and RGD-M's, where the rival stands above the line."""
    readings = [
        Reading(ex.SPELLED.get(name, name), end_ratio(rival, (_read("DC-SGD", name),)), 1, _INF)
        for name in _DC_READINGS
    ]
    by_sd = Reading("RGD-M by sd", end_ratio("RGD-M [sd]", ("DC-SGD",)), 1, _INF)
    return (*readings, by_sd) if rival == "RGD-M" else tuple(readings)


_START = Line("why", "DC-SGD's final risk beside that of the start ({})", "median / the start's",
              over_start("DC-SGD"))
_SC_E2 = [
    *about(
        "sc-e2", _BY_D["normal"],
        _line("4.1 text", "DC-SGD is comparable to the best batch method ({})", "DC-SGD's median / its",
              _end("DC-SGD"), 0, COMPARABLE, _on_figure("DC-SGD", ex.BATCH, "median"), rivals=ex.BATCH),
        _START,
    ),
    *about(
        "sc-e2", _BY_D["lognormal"],
        *(Line(_DIM, f"DC-SGD has the advantage over {other} ({{}})", "its median / DC-SGD's",
               end_ratio(other, ("DC-SGD",)), 1, _INF, _rival_readings(other)) for other in ex.BATCH),
        # 500 rounds with a tenth of the step make the noise-free progress of 50 batch updates.
        *(Line("why", f"{other} stopped where its progress is DC-SGD's ({{}})",
               "its median at that cost / DC-SGD's final one",
               same_progress("DC-SGD", other, cost * ex.HIGH_N))
          for other, cost in (("RGD-MoM", 50), ("RGD-M", 50), ("RGD-Lec", 5))),
        _START,
    ),
    *about(
        "sc-e2", [_NEAR_FAR["lognormal"]],
        Line(_DIM, "Under heavy tails the advantage of DC-SGD grows with d",
             f"lead over the best batch method at d = {_FAR_D} / at d = {_NEAR_D}",
             lead_growth("DC-SGD"), 1, _INF),
    ),
    *about(
        "sc-e2", [_NEAR_FAR["normal"]],
        *(Line(_DIM, f"Under Normal noise the error of {method} changes little with d",
               f"median at d = {_FAR_D} / at d = {_NEAR_D}", across(method), 1 / COMPARABLE, COMPARABLE)
          for method in ("ERM-GD", "DC-SGD")),
    ),
    *about(
        "sc-e2", _NEAR_FAR["normal"],
        Line("4.1 text", "The computational error of batch methods is small after 100n gradients ({})",
             "true GD's median / ERM-GD's", end_ratio("true GD", ("ERM-GD",)), 0, SMALL_PART),
    ),
    *about(
        "sc-e2", [f"{noise} large" for noise in NOISES],
        _line(_ROWS, "With n ≫ d DC-SGD takes a small hit from splitting ({first})",
              "DC-SGD's median / best RGD's", _end("DC-SGD"), 1, SMALL_HIT,
              _on_figure("DC-SGD", ROBUST, "median"), rivals=ROBUST),
        Line("why", "Optimisation error left in RGD-M with n ≫ d ({first})", "true GD's median / RGD-M's",
             end_ratio("true GD", ("RGD-M",))),
    ),
]


def _times(name: str, proposed: str, figure: str) -> list[Claim]:
    """Claims about computation times, the same in both sections."""
    # The largest size runs with --full alone, so that the one below it is judged as well.
    kinds = {f"growing d={d}": "growing d=2" for d in ex.GROWING[-2:]} | {f"fixed d={_FAR_D}": "fixed d=2"}
    largest = [f"lognormal {kind}" for kind in kinds]
    return [
        *about(
            name, largest,
            *(Line(figure, f"{proposed} takes a small fraction of the time of {other} ({{}})",
                   f"processor seconds of {other}, 100n / {proposed}'s, 2n",
                   seconds_ratio(proposed, other), 1 / SMALL_PART, _INF) for other in ex.BATCH),
        ),
        *about(
            name, largest,
            *(Line("why", f"On the clock, {other} beside {proposed} ({{}})",
                   f"seconds of {other}, 100n / {proposed}'s, 2n",
                   seconds_ratio(proposed, other, "seconds")) for other in ex.BATCH),
        ),
        *about(
            name, [(f"lognormal {small}", f"lognormal {large}") for large, small in kinds.items()],
            Line(figure, f"{proposed} scales better than RGD ({{}} to {{last}})",
                 "growth of its lead in processor time over the fastest RGD method",
                 seconds_lead_growth(proposed), 1, _INF),
        ),
        *about(
            name, largest,
            *(Line("why", f"Two {workers} for {proposed} ({{}})", "seconds with one / with two",
                   seconds_ratio(f"{proposed}, 2 {workers}", proposed, "seconds"))
              for workers in ("threads", "processes")),
        ),
    ]


def _sc_e4(noise: str) -> list[Claim]:
    starts = [f"{noise} c={c}" for c in ex.STARTS]
    return [
        *about(
            "sc-e4", starts,
            _line("4.1 Fig 7", "DC-SGD is comparable to the best RGD whatever the start ({})",
                  "average at the end / best RGD's", _end("DC-SGD", "average"), 0, COMPARABLE,
                  _on_figure("DC-SGD", ROBUST), rivals=ROBUST),
        ),
        *about(
            "sc-e4", [(starts[0], starts[-1])],
            Line("4.1 Fig 7", "A far start does not change what DC-SGD ends with ({first})",
                 "average at the end, c = 10 / c = 2.5", across("DC-SGD", "average"), 0, COMPARABLE),
        ),
    ]


_SC_E5 = [
    *about(
        "sc-e5", _ALL_LEVELS,
        _line("4.1 Fig 8", "DC-SGD is comparable to the best RGD at every noise level ({})",
              "average at the end / best RGD's", _end("DC-SGD", "average"), 0, COMPARABLE,
              _on_figure("DC-SGD", ROBUST), rivals=ROBUST),
    ),
    *about(
        "sc-e5", [()],
        *(Line("4.1 text", f"Noise is about as wide in both families ({level})",
               "inter-quartile range, log-Normal / Normal", width_ratio(level), 1 / ALIKE, ALIKE)
          for level in LEVELS["normal"]),
    ),
]

_NONSC_E1 = about(
    "nonsc-e1", NOISES,
    *(_line(_RV_POC, f"{rv} irons out the noise of SGD ({{}})", "sd at the end / SGD's",
            lambda reading, _, rv=rv: end_ratio(_read(rv, reading), ("SGD",), "sd"), 0, IRONED,
            readings=_SCALES if rv == "RV-SGD" else (*_VALIDS, "each")) for rv in ("RV-SGD", "RV-SGDAve")),
    _line(_RV_POC, "RV-SGDAve ends with a risk comparable to RGD's ({})", "average / best RGD's",
          _end("RV-SGDAve", "average"), 0, COMPARABLE, _on_figure("RV-SGDAve", ROBUST),
          readings=(*_VALIDS, "each"), rivals=ROBUST, along="m-scale"),
    Line("why", "RV-SGDAve with the M-scale beside RGD-M by sd alone ({})", "average / RGD-M's",
         end_ratio("RV-SGDAve [m-scale]", ("RGD-M [sd]",), "average")),
    _line(_RV_POC, "RV-SGDAve varies between trials as RGD does ({})", "sd / best RGD's",
          _end("RV-SGDAve", "sd"), 0, COMPARABLE, _on_figure("RV-SGDAve", ROBUST, "sd"),
          readings=(*_VALIDS, "each"), rivals=ROBUST, along="m-scale"),
    _line(_RV_POC, "RV-SGDAve gets to its level at a much smaller cost than RGD ({})",
          "its cost / least cost of an RGD method, to the same level",
          lambda reading, rivals: cost_share(_read("RV-SGDAve", reading), rivals), 0, FAR_LESS,
          readings=(*_VALIDS, "each"), rivals=ROBUST),
    Line("4.2 text", "More passes remedy what RV-SGDAve leaves after 2n ({}, d = 2)",
         "average at the end / at cost 2n", passed_on("RV-SGDAve", 2.0 * ex.SMALL_N), 0, 1),
)

_ROOM = Line(_RV_DIM, "One pass of RV-SGDAve leaves room for improvement ({})",
             "median / best batch method's", end_ratio("RV-SGDAve", ex.BATCH), ALIKE, _INF)
_NONSC_E2_LINES = (
    _line(_RV_DIM, "RV-SGDAve performs near-identically to the best batch method ({})", "median / its",
          _end("RV-SGDAve"), 1 / ALIKE, ALIKE, _on_figure("RV-SGDAve", ex.BATCH, "median"),
          readings=(*_VALIDS, "each"), rivals=ex.BATCH, along="m-scale"),
    Line("4.2 text", "More passes remedy what RV-SGDAve leaves after 2n ({})",
         f"average at cost {ex.MORE_PASSES}n / at 2n",
         passed_on("RV-SGDAve, more passes", 2.0 * ex.HIGH_N), 0, 1),
    Line("why", "Optimisation error in what RV-SGDAve ends with ({})",
         "true SGDAve's median / RV-SGDAve's", end_ratio("true SGDAve", ("RV-SGDAve",))),
)
_NONSC_E2 = [
    *about("nonsc-e2", _BY_D["normal"], *_NONSC_E2_LINES, _ROOM),
    *about("nonsc-e2", _BY_D["lognormal"], *_NONSC_E2_LINES),
]

_NONSC_E3 = [
    *_times("nonsc-e3", "RV-SGDAve", "4.2 Fig 13"),
    *about(
        "nonsc-e3", [tuple(f"{noise} fixed d={_NEAR_D}" for noise in NOISES)],
        *(Line("4.2 text", f"Noise makes virtually no difference to the time of {method}",
               "processor seconds under log-Normal / Normal noise", seconds_across(method),
               1 / COMPARABLE, COMPARABLE) for method in (*ex.BATCH, "RV-SGDAve")),
    ),
]


def _nonsc_e4(noise: str, text: str, low: float, high: float) -> list[Claim]:
    return about(
        "nonsc-e4", [noise],
        *(_line("4.2 Fig 14", f"{rv}-CV {text} {rv} ({{}})",
                f"{statistic} of the first at the end / of the second",
                lambda reading, _, rv=rv, statistic=statistic: end_ratio(
                    _read(f"{rv}-CV", reading), (_read(rv, reading),), statistic),
                low, high, readings=_SCALES if rv == "RV-SGD" else _VALIDS)
          for rv in ("RV-SGD", "RV-SGDAve") for statistic in ("average", "median")),
    )


CLAIMS: tuple[Claim, ...] = (
    *_SC_E1,
    *_SC_E2,
    *_times("sc-e3", "DC-SGD", "4.1 Fig 6"),
    *(claim for noise in NOISES for claim in _sc_e4(noise)),
    *_SC_E5,
    *_NONSC_E1,
    *_NONSC_E2,
    *_NONSC_E3,
    *_nonsc_e4("normal", "is comparable to", 1 / COMPARABLE, COMPARABLE),
    *_nonsc_e4("lognormal", "does not get near", VOLATILE, _INF),
)
# fmt: on
