"""What a sub-process does with a gradient; ``RULES`` lists them by name.

The paper's sub-process is plain SGD; among its future directions are other geometries (mirror descent) and a
comparison with truncation. A rule is a frozen record with an integer code and a number, which is all that the
compiled passes see; it works in scaled coordinates, in DC and RV, in memory and in streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import Registry

__all__ = ["RULES", "Clipped", "Entropy", "Mirror", "PlainSGD", "Rule", "get_rule"]

GRADIENT, CLIPPED, MIRROR, ENTROPY = range(4)
AUTOMATIC_QUANTILE = 0.9  # of gradient norms at the start, as the clipping level


class Rule:
    """What every rule has: a code, a number, and what it asks of the rows and of the constraint."""

    code: ClassVar[int]
    changes_geometry: ClassVar[bool] = False

    @property
    def strength(self) -> float:
        """The number that the compiled passes need."""
        return 0.0

    def prepared(self, norms: Callable[[], Array], d: int) -> Rule:
        """Fill in what is automatic, from norms of gradients at the start and the number of features."""
        return self

    def check(self, *, simplex: bool, penalised: bool, outputs: int) -> None:
        """Refuse a problem that the rule is not for."""
        if penalised and self.changes_geometry:
            raise ValueError(
                f"learner {type(self).__name__.lower()!r} takes no penalty: use a constraint instead"
            )


@dataclass(frozen=True)
class PlainSGD(Rule):
    """w ← w − αG, the sub-process of the paper (equation sgd_defn)."""

    code = GRADIENT


@dataclass(frozen=True)
class Clipped(Rule):
    """w ← w − α min(1, level/‖G‖) G: no row moves a candidate by more than α · level.

    Parameters
    ----------
    level : float, optional
        In scaled coordinates. By default the 0.9 quantile of the norms of gradients at the start.

    Examples
    --------
    >>> Clipped().prepared(lambda: np.array([1.0, 2.0, 100.0]), 1).level
    80.4
    """

    code = CLIPPED
    level: float | None = None

    def __post_init__(self) -> None:
        if self.level is not None and not 0 < self.level < math.inf:
            raise ValueError(f"the clipping level must be positive and finite; got {self.level}")

    @property
    def strength(self) -> float:
        """The level."""
        return math.inf if self.level is None else float(self.level)

    def prepared(self, norms: Callable[[], Array], d: int) -> Rule:
        """Take the level from the norms where none was given; without any gradient, nothing is clipped."""
        if self.level is not None:
            return self
        level = float(np.quantile(norms(), AUTOMATIC_QUANTILE))
        return replace(self, level=level) if 0 < level < math.inf else self


@dataclass(frozen=True)
class Mirror(Rule):
    """Mirror descent with Φ = ½‖·‖²_p: ∇Φ(w) ← ∇Φ(w) − αG (equation smd_defn), for sparse solutions.

    Parameters
    ----------
    p : float, optional
        1 < p ≤ 2; 2 is plain SGD. By default 1 + 1/log(d), and 2 for fewer than three features.

    Examples
    --------
    >>> round(Mirror().prepared(lambda: np.ones(1), 1000).strength, 3)
    1.145
    """

    code = MIRROR
    changes_geometry = True
    p: float | None = None

    def __post_init__(self) -> None:
        if self.p is not None and not 1 < self.p <= 2:
            raise ValueError(f"p of mirror descent must lie in (1, 2]; got {self.p}")

    @property
    def strength(self) -> float:
        """P itself."""
        return 2.0 if self.p is None else float(self.p)

    def prepared(self, norms: Callable[[], Array], d: int) -> Rule:
        """Take p from the number of features where none was given."""
        return self if self.p is not None else replace(self, p=1 + 1 / math.log(d) if d >= 3 else 2.0)


@dataclass(frozen=True)
class Entropy(Rule):
    """Mirror descent with the entropy: w ∝ w exp(−αG), on the simplex (``constraint=("simplex", total)``)."""

    code = ENTROPY
    changes_geometry = True

    def check(self, *, simplex: bool, penalised: bool, outputs: int) -> None:
        """Refuse anything but one output on the simplex."""
        super().check(simplex=simplex, penalised=penalised, outputs=outputs)
        if not simplex or outputs > 1:
            raise ValueError("learner 'entropy' needs constraint=(\"simplex\", total) and a single output")


RULES: Registry[Callable[..., Rule]] = Registry(
    "learner", {"sgd": PlainSGD, "clipped": Clipped, "mirror": Mirror, "entropy": Entropy}
)


def get_rule(spec: Any) -> Rule:
    """Read a rule: a name, a name with its number, or an object of this module.

    Examples
    --------
    >>> get_rule("sgd"), get_rule(("clipped", 5.0))
    (PlainSGD(), Clipped(level=5.0))
    """
    if isinstance(spec, Rule):
        return spec
    name, *numbers = spec if isinstance(spec, tuple | list) else (spec,)
    try:
        return RULES[name](*numbers)
    except TypeError:
        raise ValueError(f"learner {name!r} does not take {len(numbers)} numbers; got {spec!r}") from None
