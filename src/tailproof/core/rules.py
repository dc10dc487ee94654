"""What a sub-process does with a gradient; ``RULES`` lists them by name.

The paper's sub-process is plain SGD; among its future directions are other geometries (mirror descent) and a
comparison with truncation. A rule is a frozen record with an integer code, a number and, for some, more of
them (``memory``), which is all that the compiled passes see; it works in scaled coordinates, in DC and RV, in
memory, in streams and on clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from tailproof.core import Array
from tailproof.core.lookup import Registry

__all__ = [
    "RULES",
    "AtStart",
    "Clipped",
    "Entropy",
    "Mirror",
    "Momentum",
    "PlainSGD",
    "Rule",
    "Truncated",
    "get_rule",
]

GRADIENT, CLIPPED, MIRROR, ENTROPY, MOMENTUM, TRUNCATED = range(6)
AUTOMATIC_QUANTILE = 0.9  # of gradient norms at the start, as the clipping level
_LOG_CONFIDENCE = 3.0  # log(1/0.05), of the automatic truncation level
_NOTHING = np.empty(0)


class AtStart(Protocol):
    """What a rule may ask about gradients at the start, in scaled or whitened coordinates.

    Attributes
    ----------
    d : int
        Number of features.
    block_rows : float
        Rows of a block.
    """

    @property
    def d(self) -> int: ...  # noqa: D102

    @property
    def block_rows(self) -> float: ...  # noqa: D102

    def norms(self) -> Array:
        """‖G‖ of some rows."""
        ...

    def anchor(self) -> Array:
        """A robust mean of the gradients of some rows, intercepts last."""
        ...

    def distances(self, anchor: Array, p: float) -> Array:
        """Distances of those gradients from a vector, in the norm dual to the p-norm."""
        ...

    def smoothness(self) -> float:
        """L of the risk: how much its gradient changes from place to place."""
        ...

    def place(self) -> Array:
        """The start itself, intercepts last."""
        ...


class Rule:
    """What every rule has: a code, a number, and what it asks of the rows and of the constraint.

    Attributes
    ----------
    code : int
    changes_geometry : bool
        Columns are scaled, but not whitened: it would be another geometry.
    has_velocity : bool
        A candidate carries a mean of its gradients along.
    memory : array
        More numbers for the compiled passes, the same for all candidates; most often none.
    """

    code: ClassVar[int]
    changes_geometry: bool = False
    has_velocity: ClassVar[bool] = False
    memory: Array = _NOTHING

    @property
    def strength(self) -> float:
        """The number that the compiled passes need."""
        return 0.0

    def prepared(self, at: AtStart) -> Rule:
        """Fill in what is automatic, from gradients at the start."""
        return self

    def resumed(self, strength: float, memory: Array, d: int) -> Rule:
        """Fill in what was automatic, from what a rule with the same parameters has found."""
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
    >>> Clipped(5.0).strength
    5.0
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

    def prepared(self, at: AtStart) -> Rule:
        """Take the level from the norms where none was given; without any gradient, nothing is clipped."""
        if self.level is not None:
            return self
        return self.resumed(float(np.quantile(at.norms(), AUTOMATIC_QUANTILE)), _NOTHING, at.d)

    def resumed(self, strength: float, memory: Array, d: int) -> Rule:
        """Take the level where none was given."""
        found = self.level is None and 0 < strength < math.inf
        return replace(self, level=strength) if found else self


@dataclass(frozen=True)
class Mirror(Rule):
    """Mirror descent with Φ = ½‖·‖²_p: ∇Φ(w) ← ∇Φ(w) − αG (equation smd_defn), for sparse solutions.

    Parameters
    ----------
    p : float, optional
        1 < p ≤ 2; 2 is plain SGD. By default 1 + 1/log(d), and 2 for fewer than three features.

    Examples
    --------
    >>> round(Mirror().resumed(0.0, np.empty(0), d=1000).strength, 3)
    1.145
    """

    code = MIRROR
    changes_geometry = True
    p: float | None = None

    def __post_init__(self) -> None:
        _check_p(self.p)

    @property
    def strength(self) -> float:
        """P itself."""
        return 2.0 if self.p is None else float(self.p)

    def prepared(self, at: AtStart) -> Rule:
        """Take p from the number of features where none was given."""
        return self.resumed(0.0, _NOTHING, at.d)

    def resumed(self, strength: float, memory: Array, d: int) -> Rule:
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


@dataclass(frozen=True)
class Momentum(Rule):
    """v ← βv + (1 − β)G, w ← w − αv: gradients are averaged before they move a candidate.

    Heavy ball with the long-run step of plain SGD. A candidate carries v along, from pass to pass and from
    piece to piece; v is zero at the start, and again at the start of every round.

    Parameters
    ----------
    beta : float
        0 ≤ β < 1; 0 is plain SGD.

    Examples
    --------
    >>> Momentum(0.5).strength
    0.5
    """

    code = MOMENTUM
    has_velocity = True
    beta: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta of momentum must lie in [0, 1); got {self.beta}")

    @property
    def strength(self) -> float:
        """β."""
        return float(self.beta)


@dataclass(frozen=True)
class Truncated(Rule):
    """Truncated mirror descent of Juditsky, Nazin, Nemirovsky and Tsybakov (2019).

    A gradient G farther from an anchor g than λ + L‖u − u₀‖, in the dual norm, is replaced by g, in mirror
    descent with Φ = ½‖·‖²_p. The anchor is a geometric median of means of gradients at the start u₀, and L
    the smoothness of the risk there, both estimated from a sample of rows.

    Parameters
    ----------
    level : float, optional
        λ, in scaled coordinates. By default σ√(N/log(1/δ)), where σ is the robust root mean square of ‖G − g‖
        at the start, N the number of rows of a block, and δ = 0.05: large enough to keep the bias of
        truncation below the statistical error.
    p : float
        1 < p ≤ 2; 2, the default, is truncated SGD.
    memory : array
        What the compiled passes need; filled in by the fit.

    Examples
    --------
    >>> Truncated(p=1.5).changes_geometry, Truncated().changes_geometry
    (True, False)
    """

    code = TRUNCATED
    level: float | None = None
    p: float = 2.0
    memory: Array = field(default_factory=lambda: _NOTHING, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.level is not None and not 0 < self.level < math.inf:
            raise ValueError(f"the truncation level must be positive and finite; got {self.level}")
        _check_p(self.p)

    @property
    def changes_geometry(self) -> bool:  # type: ignore[override]
        """Whether p is not 2."""
        return self.p < 2

    @property
    def strength(self) -> float:
        """P itself."""
        return float(self.p)

    def prepared(self, at: AtStart) -> Rule:
        """Put level, smoothness, anchor and start together."""
        anchor = at.anchor()
        level = self.level
        if level is None:
            groups = np.array_split(at.distances(anchor, self.p) ** 2, 10)
            square = float(np.median([group.mean() for group in groups if group.size]))
            level = math.sqrt(square * max(at.block_rows / _LOG_CONFIDENCE, 1.0))
        return replace(self, memory=np.concatenate([[level, at.smoothness()], anchor, at.place()]))

    def resumed(self, strength: float, memory: Array, d: int) -> Rule:
        """Take the numbers of the earlier rule."""
        return replace(self, memory=memory)


def _check_p(p: float | None) -> None:
    if p is not None and not 1 < p <= 2:
        raise ValueError(f"p of mirror descent must lie in (1, 2]; got {p}")


RULES: Registry[Callable[..., Rule]] = Registry(
    "learner",
    {
        "sgd": PlainSGD,
        "clipped": Clipped,
        "mirror": Mirror,
        "entropy": Entropy,
        "momentum": Momentum,
        "truncated": Truncated,
    },
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
