"""Every qualitative claim of sections 4.1 and 4.2, from the discussion paragraphs and the captions.

``CLAIMS`` lists them. Words are given numbers once, here: "comparable" is within a factor of 1.25 on the bad
side, "near-identical" within 1.1 on both sides, "a few passes" at most 5, "far less" at most a third, "a
small fraction" at most a fifth, "a small hit" at most a factor of 2, "volatile" and "not even near" at least
a factor of 2, and noise is "ironed out" where at most half of the standard deviation is left. Curves that
cannot be told apart on the scale of a figure are within a hundredth of the excess risk of the start.
Entries without a range are no claims of the paper but measurements that tell why a claim holds or fails.
"""

from __future__ import annotations

import math

from tailproof.paper import experiments as ex
from tailproof.paper.judging import Claim
from tailproof.paper.measures import (
    COMPARABLE,
    ROBUST,
    Measure,
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
_FAR_D, _NEAR_D = ex.SHOWN[-1], ex.SHOWN[0]
_POC, _DIM, _ROWS = "4.1 Figs 2-3", "4.1 Fig 4", "4.1 Fig 5"
_RV_POC, _RV_DIM = "4.2 Figs 9-11", "4.2 Fig 12"


def _claim(
    experiment: str,
    where: str,
    text: str,
    quantity: str,
    measure: Measure,
    settings: list[str],
    low: float = math.nan,
    high: float = math.nan,
) -> Claim:
    return Claim(experiment, where, text, quantity, measure, tuple(settings), low, high)


def _sc_e1(noise: str) -> list[Claim]:
    name, share = "sc-e1", "true GD's average at the end / the best RGD's"
    few = "A few passes are enough for DC-SGD to match the best RGD method"
    return [
        _claim(name, _POC, f"{few} on average ({noise})", "passes until within 1.25 of its end",
               passes_to_match(noise, "DC-SGD", "average"), [noise], 0, FEW_PASSES),
        _claim(name, _POC, f"{few} in standard deviation ({noise})", "passes until within 1.25 of its end",
               passes_to_match(noise, "DC-SGD", "sd"), [noise], 0, FEW_PASSES),
        _claim(name, _POC, f"{few} on the scale of the figure ({noise})",
               "passes until its average is within a hundredth of the start's",
               passes_until_invisible(noise, "DC-SGD"), [noise], 0, FEW_PASSES),
        _claim(name, "why", f"The same without any noise: descent with DC-SGD's steps ({noise})",
               "passes until its average is within a hundredth of the start's",
               passes_until_invisible(noise, "true SGD"), [noise]),
        _claim(name, _POC, f"DC-SGD is comparable to RGD in the end ({noise})", "average / best RGD's",
               end_ratio(noise, "DC-SGD", ROBUST, "average"), [noise], 0, COMPARABLE),
        _claim(name, _POC, f"DC-SGD gets there with far less computation ({noise})",
               "its cost / least cost of an RGD method, to the same level",
               cost_share(noise, "DC-SGD"), [noise], 0, FAR_LESS),
        _claim(name, _POC, f"The sub-processes are very noisy: SGD is volatile ({noise})",
               "SGD's sd at the end / DC-SGD's", end_ratio(noise, "SGD", ("DC-SGD",), "sd"), [noise],
               VOLATILE, math.inf),
        _claim(name, "why", f"DC-SGD beside RGD-MoM alone, which splits as it does ({noise})",
               "average at the end / RGD-MoM's", end_ratio(noise, "DC-SGD", ("RGD-MoM",), "average"),
               [noise]),
        _claim(name, "why", f"Optimisation error in what RGD ends with ({noise})", share,
               end_ratio(noise, "true GD", ROBUST, "average"), [noise]),
    ]  # fmt: skip


def _sc_e2_dimension(noise: str, d: int) -> list[Claim]:
    name, setting = "sc-e2", f"{noise} d={d}"
    # 500 rounds with a tenth of the step make the noise-free progress of 50 batch updates.
    matched = [
        _claim(name, "why", f"{other} stopped where its progress is DC-SGD's ({setting})",
               "its median at that cost / DC-SGD's final one",
               same_progress(setting, "DC-SGD", other, cost * ex.HIGH_N), [setting])
        for other, cost in (("RGD-MoM", 50), ("RGD-M", 50), ("RGD-Lec", 5))
    ]  # fmt: skip
    advantage = [
        _claim(name, _DIM, f"DC-SGD has the advantage over {other} ({setting})", "its median / DC-SGD's",
               end_ratio(setting, other, ("DC-SGD",)), [setting], 1, math.inf)
        for other in ex.BATCH
    ]  # fmt: skip
    alike = _claim(
        name, "4.1 text", f"DC-SGD is comparable to the best batch method ({setting})",
        "DC-SGD's median / its", end_ratio(setting, "DC-SGD", ex.BATCH), [setting], 0, COMPARABLE,
    )  # fmt: skip
    start = _claim(
        name, "why", f"DC-SGD's final risk beside that of the start ({setting})", "median / the start's",
        over_start(setting, "DC-SGD"), [setting],
    )  # fmt: skip
    return [*advantage, *matched, start] if noise == "lognormal" else [alike, start]


def _sc_e2() -> list[Claim]:
    name, ends = "sc-e2", (_NEAR_D, _FAR_D)
    lognormal, normal = ([f"{noise} d={d}" for d in ends] for noise in ("lognormal", "normal"))
    small = "The computational error of batch methods is small after 100n gradients"
    found = [claim for noise in NOISES for d in ex.SHOWN for claim in _sc_e2_dimension(noise, d)]
    found.append(
        _claim(name, _DIM, "Under heavy tails the advantage of DC-SGD grows with d",
               f"lead over the best batch method at d = {_FAR_D} / at d = {_NEAR_D}",
               lead_growth(lognormal[0], lognormal[1], "DC-SGD"), lognormal, 1, math.inf)
    )  # fmt: skip
    found += [
        _claim(name, _DIM, f"Under Normal noise the error of {method} changes little with d",
               f"median at d = {_FAR_D} / at d = {_NEAR_D}", across(normal[0], normal[1], method), normal,
               1 / COMPARABLE, COMPARABLE)
        for method in ("ERM-GD", "DC-SGD")
    ]  # fmt: skip
    found += [
        _claim(name, "4.1 text", f"{small} ({setting})", "true GD's median / ERM-GD's",
               end_ratio(setting, "true GD", ("ERM-GD",)), [setting], 0, SMALL_PART)
        for setting in normal
    ]  # fmt: skip
    for noise in NOISES:
        setting = f"{noise} large"
        found += [
            _claim(name, _ROWS, f"With n ≫ d DC-SGD takes a small hit from splitting ({noise})",
                   "DC-SGD's median / best RGD's", end_ratio(setting, "DC-SGD", ROBUST), [setting],
                   1, SMALL_HIT),
            _claim(name, "why", f"Optimisation error left in RGD-M with n ≫ d ({noise})",
                   "true GD's median / RGD-M's", end_ratio(setting, "true GD", ("RGD-M",)), [setting]),
        ]  # fmt: skip
    return found


def _times(name: str, proposed: str, figure: str) -> list[Claim]:
    largest = [f"lognormal growing d={ex.GROWING[-2]}", f"lognormal fixed d={_FAR_D}"]
    smallest = ["lognormal growing d=2", "lognormal fixed d=2"]
    found = [
        _claim(name, figure, f"{proposed} takes a small fraction of the time of {other} ({setting})",
               f"processor seconds of {other}, 100n / {proposed}'s, 2n",
               seconds_ratio(setting, proposed, other), [setting], 1 / SMALL_PART, math.inf)
        for setting in largest
        for other in ex.BATCH
    ]  # fmt: skip
    found += [
        _claim(name, "why", f"On the clock, {other} beside {proposed} ({setting})",
               f"seconds of {other}, 100n / {proposed}'s, 2n",
               seconds_ratio(setting, proposed, other, "seconds"), [setting])
        for setting in largest
        for other in ex.BATCH
    ]  # fmt: skip
    found += [
        _claim(name, figure, f"{proposed} scales better than RGD ({small} to {large.split()[-1]})",
               "growth of its lead in processor time over the fastest RGD method",
               seconds_lead_growth(small, large, proposed), [small, large], 1, math.inf)
        for small, large in zip(smallest, largest, strict=True)
    ]  # fmt: skip
    found += [
        _claim(name, "why", f"Two threads for {proposed} ({setting})", "seconds with one / with two",
               seconds_ratio(setting, f"{proposed}, 2 threads", proposed, "seconds"), [setting])
        for setting in largest
    ]  # fmt: skip
    return found


def _sc_e4() -> list[Claim]:
    found = []
    for noise in NOISES:
        near, far = (f"{noise} c={c}" for c in (ex.STARTS[0], ex.STARTS[-1]))
        found += [
            _claim("sc-e4", "4.1 Fig 7", f"DC-SGD is comparable to the best RGD whatever the start ({s})",
                   "average at the end / best RGD's", end_ratio(s, "DC-SGD", ROBUST, "average"), [s],
                   0, COMPARABLE)
            for s in (f"{noise} c={c}" for c in ex.STARTS)
        ]  # fmt: skip
        found.append(
            _claim("sc-e4", "4.1 Fig 7", f"A far start does not change what DC-SGD ends with ({noise})",
                   "average at the end, c = 10 / c = 2.5", across(near, far, "DC-SGD", "average"),
                   [near, far], 0, COMPARABLE)
        )  # fmt: skip
    return found


def _sc_e5() -> list[Claim]:
    found = [
        _claim("sc-e5", "4.1 Fig 8", f"DC-SGD is comparable to the best RGD at every noise level ({s})",
               "average at the end / best RGD's", end_ratio(s, "DC-SGD", ROBUST, "average"), [s],
               0, COMPARABLE)
        for s in (f"{noise} {level}" for noise in NOISES for level in LEVELS[noise])
    ]  # fmt: skip
    return found + [
        _claim("sc-e5", "4.1 text", f"Noise is about as wide in both families ({level})",
               "inter-quartile range, log-Normal / Normal", width_ratio(level), [], 1 / ALIKE, ALIKE)
        for level in LEVELS["normal"]
    ]  # fmt: skip


def _scaled(base: str) -> list[str]:
    """Return a method with the default scale of validation, and with the two others."""
    return [base, *(f"{base} [{scale}]" for scale in ex.SCALES[1:])]


def _nonsc_e1(noise: str) -> list[Claim]:
    name = "nonsc-e1"
    found = [
        _claim(name, _RV_POC, f"{rv} irons out the noise of SGD ({noise})", "sd at the end / SGD's",
               end_ratio(noise, rv, ("SGD",), "sd"), [noise], 0, IRONED)
        for rv in _scaled("RV-SGD") + _scaled("RV-SGDAve")
    ]  # fmt: skip
    for rv in _scaled("RV-SGDAve"):
        found += [
            _claim(name, _RV_POC, f"{rv} ends with a risk comparable to RGD's ({noise})",
                   "average / best RGD's", end_ratio(noise, rv, ROBUST, "average"), [noise], 0, COMPARABLE),
            _claim(name, _RV_POC, f"{rv} varies between trials as RGD does ({noise})", "sd / best RGD's",
                   end_ratio(noise, rv, ROBUST, "sd"), [noise], 0, COMPARABLE),
            _claim(name, _RV_POC, f"{rv} gets to its level at a much smaller cost than RGD ({noise})",
                   "its cost / least cost of an RGD method, to the same level", cost_share(noise, rv),
                   [noise], 0, FAR_LESS),
        ]  # fmt: skip
    if noise == "normal":
        found.append(
            _claim(name, "4.2 text", "More passes remedy what RV-SGDAve leaves after 2n (normal)",
                   "average at the end / at cost 2n", passed_on(noise, "RV-SGDAve", 2.0), [noise], 0, 1)
        )  # fmt: skip
    return found


def _nonsc_e2() -> list[Claim]:
    name, found = "nonsc-e2", []
    for noise in NOISES:
        for d in ex.SHOWN:
            setting = f"{noise} d={d}"
            found += [
                _claim(name, _RV_DIM, f"{rv} performs near-identically to the best batch method ({setting})",
                       "median / its", end_ratio(setting, rv, ex.BATCH), [setting], 1 / ALIKE, ALIKE)
                for rv in (_scaled("RV-SGDAve") if d in (_NEAR_D, _FAR_D) else ["RV-SGDAve"])
            ]  # fmt: skip
            if noise == "normal":
                found.append(
                    _claim(name, _RV_DIM, f"One pass of RV-SGDAve leaves room for improvement ({setting})",
                           "median / best batch method's", end_ratio(setting, "RV-SGDAve", ex.BATCH),
                           [setting], ALIKE, math.inf)
                )  # fmt: skip
            found.append(
                _claim(name, "why", f"Optimisation error in what RV-SGDAve ends with ({setting})",
                       "true SGDAve's median / RV-SGDAve's",
                       end_ratio(setting, "true SGDAve", ("RV-SGDAve",)), [setting])
            )  # fmt: skip
    return found


def _nonsc_e3() -> list[Claim]:
    pair = [f"{noise} fixed d={_NEAR_D}" for noise in NOISES]
    return _times("nonsc-e3", "RV-SGDAve", "4.2 Fig 13") + [
        _claim("nonsc-e3", "4.2 text", f"Noise makes virtually no difference to the time of {method}",
               "processor seconds under log-Normal / Normal noise",
               seconds_across(pair[0], pair[1], method), pair, 1 / COMPARABLE, COMPARABLE)
        for method in (*ex.BATCH, "RV-SGDAve")
    ]  # fmt: skip


def _nonsc_e4(noise: str) -> list[Claim]:
    found = []
    for rv in ("RV-SGD", "RV-SGDAve"):
        for plain, crossed in zip(_scaled(rv), _scaled(f"{rv}-CV"), strict=True):
            for statistic in ("average", "median"):
                heavy = noise == "lognormal"
                text = "does not get near" if heavy else "is comparable to"
                ends = (VOLATILE, math.inf) if heavy else (1 / COMPARABLE, COMPARABLE)
                found.append(
                    _claim("nonsc-e4", "4.2 Fig 14", f"{crossed} {text} {plain} ({noise})",
                           f"{statistic} of the first at the end / of the second",
                           end_ratio(noise, crossed, (plain,), statistic), [noise], *ends)
                )  # fmt: skip
    return found


CLAIMS: tuple[Claim, ...] = (
    *(claim for noise in NOISES for claim in _sc_e1(noise)),
    *_sc_e2(),
    *_times("sc-e3", "DC-SGD", "4.1 Fig 6"),
    *_sc_e4(),
    *_sc_e5(),
    *(claim for noise in NOISES for claim in _nonsc_e1(noise)),
    *_nonsc_e2(),
    *_nonsc_e3(),
    *(claim for noise in NOISES for claim in _nonsc_e4(noise)),
)
