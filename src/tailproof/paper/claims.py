"""Every qualitative claim of sections 4.1 and 4.2, from the discussion paragraphs and the captions.

``CLAIMS`` lists them. Words are given numbers once, here: "comparable" is within a factor of 1.25 on the bad
side, "near-identical" within 1.1 on both sides, "a few passes" at most 5, "far less" at most a third, "a
small fraction" at most a fifth, "a small hit" at most a factor of 2, "volatile" and "not even near" at least
a factor of 2, and noise is "ironed out" where at most half of the standard deviation is left. Curves that
cannot be told apart on the scale of a figure are within a hundredth of the excess risk of the start.
Lines without a range are no claims of the paper but measurements that tell why a claim holds or fails.
"""

from __future__ import annotations

import math

from tailproof.paper import experiments as ex
from tailproof.paper.judging import Claim, Line, about
from tailproof.paper.measures import (
    COMPARABLE,
    ROBUST,
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
    width_ratio,
)
from tailproof.paper.simulated import LEVELS, NOISES

ALIKE, FEW_PASSES, FAR_LESS, SMALL_PART, SMALL_HIT, VOLATILE, IRONED = 1.1, 5.0, 1 / 3, 0.2, 2.0, 2.0, 0.5
_NEAR_D, _FAR_D = ex.SHOWN[0], ex.SHOWN[-1]
_POC, _DIM, _ROWS = "4.1 Figs 2-3", "4.1 Fig 4", "4.1 Fig 5"
_RV_POC, _RV_DIM = "4.2 Figs 9-11", "4.2 Fig 12"
_INF = math.inf
_BY_D = {noise: [f"{noise} d={d}" for d in ex.SHOWN] for noise in NOISES}
_NEAR_FAR = {noise: (f"{noise} d={_NEAR_D}", f"{noise} d={_FAR_D}") for noise in NOISES}
_ALL_LEVELS = [f"{noise} {level}" for noise in NOISES for level in LEVELS[noise]]


def _scaled(base: str) -> list[str]:
    """Return a method with the default scale of validation, and with the two others."""
    return [base, *(f"{base} [{scale}]" for scale in ex.SCALES[1:])]


# fmt: off
_FEW = "A few passes are enough for DC-SGD to match the best RGD method"
_INVISIBLE = "passes until its average is within a hundredth of the start's"
_SC_E1 = about(
    "sc-e1", NOISES,
    Line(_POC, _FEW + " on average ({})", "passes until within 1.25 of its end",
         passes_to_match("DC-SGD", "average"), 0, FEW_PASSES),
    Line(_POC, _FEW + " in standard deviation ({})", "passes until within 1.25 of its end",
         passes_to_match("DC-SGD", "sd"), 0, FEW_PASSES),
    Line(_POC, _FEW + " on the scale of the figure ({})", _INVISIBLE,
         passes_until_invisible("DC-SGD"), 0, FEW_PASSES),
    Line("why", "The same without any noise: descent with DC-SGD's steps ({})", _INVISIBLE,
         passes_until_invisible("true SGD")),
    Line(_POC, "DC-SGD is comparable to RGD in the end ({})", "average / best RGD's",
         end_ratio("DC-SGD", ROBUST, "average"), 0, COMPARABLE),
    Line(_POC, "DC-SGD gets there with far less computation ({})",
         "its cost / least cost of an RGD method, to the same level", cost_share("DC-SGD"), 0, FAR_LESS),
    Line(_POC, "The sub-processes are very noisy: SGD is volatile ({})", "SGD's sd at the end / DC-SGD's",
         end_ratio("SGD", ("DC-SGD",), "sd"), VOLATILE, _INF),
    Line("why", "DC-SGD beside RGD-MoM alone, which splits as it does ({})", "average at the end / RGD-MoM's",
         end_ratio("DC-SGD", ("RGD-MoM",), "average")),
    Line("why", "Optimisation error in what RGD ends with ({})",
         "true GD's average at the end / the best RGD's", end_ratio("true GD", ROBUST, "average")),
)

_START = Line("why", "DC-SGD's final risk beside that of the start ({})", "median / the start's",
              over_start("DC-SGD"))
_SC_E2 = [
    *about(
        "sc-e2", _BY_D["normal"],
        Line("4.1 text", "DC-SGD is comparable to the best batch method ({})", "DC-SGD's median / its",
             end_ratio("DC-SGD", ex.BATCH), 0, COMPARABLE),
        _START,
    ),
    *about(
        "sc-e2", _BY_D["lognormal"],
        *(Line(_DIM, f"DC-SGD has the advantage over {other} ({{}})", "its median / DC-SGD's",
               end_ratio(other, ("DC-SGD",)), 1, _INF) for other in ex.BATCH),
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
        Line(_ROWS, "With n ≫ d DC-SGD takes a small hit from splitting ({first})",
             "DC-SGD's median / best RGD's", end_ratio("DC-SGD", ROBUST), 1, SMALL_HIT),
        Line("why", "Optimisation error left in RGD-M with n ≫ d ({first})", "true GD's median / RGD-M's",
             end_ratio("true GD", ("RGD-M",))),
    ),
]


def _times(name: str, proposed: str, figure: str) -> list[Claim]:
    """Claims about computation times, the same in both sections."""
    kinds = {f"growing d={ex.GROWING[-2]}": "growing d=2", f"fixed d={_FAR_D}": "fixed d=2"}
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
            Line("why", f"Two threads for {proposed} ({{}})", "seconds with one / with two",
                 seconds_ratio(f"{proposed}, 2 threads", proposed, "seconds")),
        ),
    ]


def _sc_e4(noise: str) -> list[Claim]:
    starts = [f"{noise} c={c}" for c in ex.STARTS]
    return [
        *about(
            "sc-e4", starts,
            Line("4.1 Fig 7", "DC-SGD is comparable to the best RGD whatever the start ({})",
                 "average at the end / best RGD's", end_ratio("DC-SGD", ROBUST, "average"), 0, COMPARABLE),
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
        Line("4.1 Fig 8", "DC-SGD is comparable to the best RGD at every noise level ({})",
             "average at the end / best RGD's", end_ratio("DC-SGD", ROBUST, "average"), 0, COMPARABLE),
    ),
    *about(
        "sc-e5", [()],
        *(Line("4.1 text", f"Noise is about as wide in both families ({level})",
               "inter-quartile range, log-Normal / Normal", width_ratio(level), 1 / ALIKE, ALIKE)
          for level in LEVELS["normal"]),
    ),
]

_RV_LINES = [
    *(Line(_RV_POC, f"{rv} irons out the noise of SGD ({{}})", "sd at the end / SGD's",
           end_ratio(rv, ("SGD",), "sd"), 0, IRONED) for rv in _scaled("RV-SGD") + _scaled("RV-SGDAve")),
    *(line for rv in _scaled("RV-SGDAve") for line in (
        Line(_RV_POC, f"{rv} ends with a risk comparable to RGD's ({{}})", "average / best RGD's",
             end_ratio(rv, ROBUST, "average"), 0, COMPARABLE),
        Line(_RV_POC, f"{rv} varies between trials as RGD does ({{}})", "sd / best RGD's",
             end_ratio(rv, ROBUST, "sd"), 0, COMPARABLE),
        Line(_RV_POC, f"{rv} gets to its level at a much smaller cost than RGD ({{}})",
             "its cost / least cost of an RGD method, to the same level", cost_share(rv), 0, FAR_LESS),
    )),
]
_NONSC_E1 = [
    *about(
        "nonsc-e1", ["normal"], *_RV_LINES,
        Line("4.2 text", "More passes remedy what RV-SGDAve leaves after 2n ({})",
             "average at the end / at cost 2n", passed_on("RV-SGDAve", 2.0), 0, 1),
    ),
    *about("nonsc-e1", ["lognormal"], *_RV_LINES),
]


def _near_identical(rv: str) -> Line:
    return Line(_RV_DIM, f"{rv} performs near-identically to the best batch method ({{}})", "median / its",
                end_ratio(rv, ex.BATCH), 1 / ALIKE, ALIKE)


def _nonsc_e2(noise: str, d: int) -> list[Claim]:
    shown = _scaled("RV-SGDAve") if d in (_NEAR_D, _FAR_D) else ["RV-SGDAve"]
    room = Line(_RV_DIM, "One pass of RV-SGDAve leaves room for improvement ({})",
                "median / best batch method's", end_ratio("RV-SGDAve", ex.BATCH), ALIKE, _INF)
    return about(
        "nonsc-e2", [f"{noise} d={d}"],
        *(_near_identical(rv) for rv in shown),
        *([room] if noise == "normal" else []),
        Line("why", "Optimisation error in what RV-SGDAve ends with ({})",
             "true SGDAve's median / RV-SGDAve's", end_ratio("true SGDAve", ("RV-SGDAve",))),
    )


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
    pairs = [
        pair for rv in ("RV-SGD", "RV-SGDAve")
        for pair in zip(_scaled(rv), _scaled(f"{rv}-CV"), strict=True)
    ]
    return about(
        "nonsc-e4", [noise],
        *(Line("4.2 Fig 14", f"{crossed} {text} {plain} ({{}})",
               f"{statistic} of the first at the end / of the second",
               end_ratio(crossed, (plain,), statistic), low, high)
          for plain, crossed in pairs for statistic in ("average", "median")),
    )


CLAIMS: tuple[Claim, ...] = (
    *_SC_E1,
    *_SC_E2,
    *_times("sc-e3", "DC-SGD", "4.1 Fig 6"),
    *(claim for noise in NOISES for claim in _sc_e4(noise)),
    *_SC_E5,
    *_NONSC_E1,
    *(claim for noise in NOISES for d in ex.SHOWN for claim in _nonsc_e2(noise, d)),
    *_NONSC_E3,
    *_nonsc_e4("normal", "is comparable to", 1 / COMPARABLE, COMPARABLE),
    *_nonsc_e4("lognormal", "does not get near", VOLATILE, _INF),
)
# fmt: on
