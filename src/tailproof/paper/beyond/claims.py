"""A part pays if it ends with at most nine tenths of the excess risk of what it replaces, at equal cost."""

from __future__ import annotations

from collections.abc import Iterable

from tailproof.paper import experiments as ex
from tailproof.paper.beyond.experiments import (
    PASS_DIMENSIONS,
    RIVALS,
    ROUND_DIMENSIONS,
    STAGE_WISE,
    SUB_PROCESSES,
)
from tailproof.paper.judging import Claim, Line, about
from tailproof.paper.measures import COMPARABLE, end_ratio, passed_on
from tailproof.paper.simulated import NOISES

PAYS = 0.9
_WHERE = "beyond"


def _pays(name: str, plain: tuple[str, ...], words: str) -> Line:
    quantity = f"median at the end / {' or '.join(plain)}'s"
    return Line(_WHERE, words, quantity, end_ratio(name, plain), 0, PAYS)


def _beside_rgd(name: str) -> Line:
    quantity = "median at the end / best RGD's at the same cost"
    words = f"{name} is comparable to RGD at equal cost ({{}})"
    return Line(_WHERE, words, quantity, end_ratio(name, RIVALS), 0, COMPARABLE)


def _in_both(processes: Iterable[str]) -> list[Line]:
    lines = []
    for process in processes:
        for method in ("DC-SGD", "RV-SGDAve"):
            words = f"{process.capitalize()} sub-processes pay in {method} ({{}})"
            lines.append(_pays(f"{method} [{process}]", (method,), words))
        lines.append(_beside_rgd(f"DC-SGD [{process}]"))
    return lines


def _by_dimension(dimensions: Iterable[int]) -> list[str]:
    return [f"{noise} d={d}" for noise in NOISES for d in dimensions]


_PLAIN_STEPS = ("DC-SGD", "DC-SGD [larger steps]")
BEYOND_CLAIMS: tuple[Claim, ...] = (
    *about("beyond-e1", NOISES, *_in_both(SUB_PROCESSES)),
    *about(
        "beyond-e2",
        [f"{noise} {kind}" for noise in NOISES for kind in ("sparse", "dense")],
        _pays("DC-SGD [mirror]", _PLAIN_STEPS, "Mirror descent pays ({})"),
        _beside_rgd("DC-SGD [mirror]"),
    ),
    *about(
        "beyond-e3",
        _by_dimension(ROUND_DIMENSIONS),
        _pays("DC-SGD [rounds]", ("DC-SGD",), "Rounds pay ({})"),
        *(
            _pays(f"DC-SGD [{how}]", ("DC-SGD [rounds]",), f"Rounds with {how} pay beyond rounds ({{}})")
            for how in STAGE_WISE
        ),
        _beside_rgd("DC-SGD [rounds]"),
    ),
    *about(
        "beyond-e4",
        _by_dimension(PASS_DIMENSIONS),
        *(
            _pays(f"RV-SGDAve [{how}]", ("RV-SGDAve",), f"{how.capitalize()} pays in several passes ({{}})")
            for how in ("decaying", "early stopping", "clipped")
        ),
        *(
            Line(
                _WHERE,
                f"More passes do no harm to {name} ({{}})",
                "average at 20n / at 2n",
                passed_on(name, 2.0 * ex.HIGH_N),
                0,
                1,
            )
            for name in ("RV-SGDAve", "RV-SGDAve [early stopping]")
        ),
        _beside_rgd("RV-SGDAve [early stopping]"),
    ),
)
