"""Where the paper is silent or says two things: our default and the variants, by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from tailproof.core.lookup import lookup

# The first value of each is the default.
VARIANTS: dict[str, dict[str, str]] = {
    "start": {
        "one": "one start per trial, for all methods and sub-processes",
        "each": "one start per sub-process",
    },
    "lec_cost": {
        "block": "an update of RGD-Lec costs the n/k gradients of the chosen block",
        "all": "an update of RGD-Lec costs n",
    },
    "lec_middle": {
        "lower": "RGD-Lec takes the lower of the two middle blocks",
        "upper": "RGD-Lec takes the upper of the two middle blocks",
    },
    "m_scale": {
        "m-scale": "RGD-M scales partial derivatives by Geman's M-scale",
        "sd": "RGD-M scales partial derivatives by their standard deviation",
    },
    "rv_scale": {
        "sd": "RV validates by Algorithm cat with σ = sample standard deviation",
        "robust": "RV validates by Algorithm cat with a median-of-means σ",
        "m-scale": "RV validates with Geman's M-scale used as s itself, and the wide ψ",
    },
    "rv_average": {
        "start": "in 4.2 E1 and E4 RV-SGDAve averages from the first update on",
        "after-n": "in 4.2 E1 and E4 RV-SGDAve averages after the first n gradients",
    },
    "rv_passes": {
        "2n": "in 4.2 E2 and E3 RV-SGDAve takes n gradients to initialise and averages the next n",
        "half": "in 4.2 E2 and E3 RV-SGDAve takes one pass over its half to initialise and one to average",
    },
    "flat_start": {
        "divided": "in 4.2 E2 and E3 the distance of the start is divided by √d",
        "undivided": "in 4.2 E2 and E3 the distance of the start grows with √d",
    },
    "dc_budget": {
        "2n": "DC-SGD at n = 64,000 takes 2n gradients (the caption)",
        "n": "DC-SGD at n = 64,000 takes n gradients (the text)",
    },
    "walk_step": {
        "0.01": "sequential steps are 0.01/√d, as stated",
        "0.001": "sequential steps are a tenth of that, to tell what the step does",
    },
}


@dataclass(frozen=True)
class Choices:
    """One value for each name in ``VARIANTS``, the seed, and the rows of real data to train on (0: all).

    Examples
    --------
    >>> Choices.parse(["start=each", "seed=7"]).tag()
    'seed=7,start=each'
    """

    start: str = "one"
    lec_cost: str = "block"
    lec_middle: str = "lower"
    m_scale: str = "m-scale"
    rv_scale: str = "sd"
    rv_average: str = "start"
    rv_passes: str = "2n"
    flat_start: str = "divided"
    dc_budget: str = "2n"
    walk_step: str = "0.01"
    seed: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        for name, variants in VARIANTS.items():
            lookup(name, getattr(self, name), variants)

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> Choices:
        """From "name=value" texts; what is not named keeps its default."""
        choices = cls()
        for pair in pairs:
            name, _, value = pair.partition("=")
            lookup("the name of a choice", name, {field.name: field for field in fields(cls)})
            choices = replace(choices, **{name: _whole(name, value) if name in ("seed", "rows") else value})  # type: ignore[arg-type]
        return choices

    def tag(self, *always: str) -> str:
        """Return what differs from the defaults, and what is always said, in one word."""
        default = vars(Choices())
        return ",".join(f"{n}={v}" for n, v in sorted(vars(self).items()) if n in always or v != default[n])

    def spelled_out(self) -> str:
        """Return all choices, in one line."""
        return " ".join(f"{name}={value}" for name, value in vars(self).items())


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{name} must be a whole number, not negative; got {text!r}")
    return int(text)
