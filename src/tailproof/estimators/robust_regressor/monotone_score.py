"""The best increasing score for the noise of a regression, learned from residuals, and slopes by it.

Where noise has density f and does not depend on x, an estimate of slopes with score ψ has a variance in
proportion to E ψ²/(E ψ′)². Of all increasing ψ (convex losses) the least is that of

    ψ(r) = −Ĵ′(F(r)),    Ĵ the least concave majorant of J(u) = f(F⁻¹(u)) on [0, 1]

(Feng, Kao, Xu and Samworth, "Optimal convex M-estimation via score matching"). It is near Huber's ψ for
symmetric heavy tails. For skewed noise it is steep where the short tail ends: such an edge tells slopes far
better than any truncation on both sides does, by a factor of ten under log-normal noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tailproof.core import Array
from tailproof.native.scores import best_score, score_of_rows

_ROUNDS = 6  # of learning the score and taking a step: the first residuals blur the edge
_SETTLED = 0.01  # of the variance of the fit: steps whose squares are smaller are the last
_HOPELESS = 1.2  # of the largest variance that is worth it, in the first round
_FEWEST_BINS, _MOST_BINS = 8, 40
_LEARNED = 1.15  # factor of standard errors: without it intervals at 0.95 covered 0.91 to 0.95
_ROUNDING = 1e-10  # of sums of shares, many rows having smaller ones
_NARROWEST = 1e-9  # bin, of the distance between the quartiles: ties are no information


@dataclass(frozen=True)
class MonotoneScore:
    """ψ: linear between knots, where it has the values given, and constant beyond them."""

    knots: Array
    values: Array

    def at(self, r: Array) -> Array:
        """ψ of residuals."""
        return np.interp(r, self.knots, self.values)

    def slopes(self, r: Array) -> Array:
        """ψ′ of residuals."""
        return self.both(r)[1]

    def both(self, r: Array) -> tuple[Array, Array]:
        """ψ and ψ′, at a knot the mean of those on both sides of it: knots are residuals."""
        return score_of_rows(np.ascontiguousarray(r), self.knots, self.values)


def learn_score(r: Array, v: Array) -> MonotoneScore | None:
    """The best increasing ψ for residuals with shares v; None where half of them are alike.

    J is a histogram whose bins hold equally many residuals.

    Examples
    --------
    >>> noise = np.random.default_rng(0).exponential(size=2_000)
    >>> score = learn_score(noise, np.full(2_000, 1 / 2_000))
    >>> bool(np.all(np.diff(score.values) > 0)), bool(score.knots[0] < 0.1)
    (True, True)
    """
    bins = min(max(int(math.sqrt(r.size)), _FEWEST_BINS), _MOST_BINS)
    knots, values = best_score(*_in_order(r, v), bins, _ROUNDING, _NARROWEST)
    return MonotoneScore(knots, values) if knots.size else None


def _in_order(r: Array, v: Array) -> tuple[Array, Array | None]:
    """Residuals in increasing order, and the shares of all up to each, unless they are equal."""
    if (v == v[0]).all():
        return np.sort(r), None
    order = np.argsort(r)
    return r[order], np.cumsum(v[order])


@dataclass(frozen=True)
class ScoreFit:
    """Slopes by a learned score.

    Attributes
    ----------
    phi : array of shape (rank,)
        To be added to what the residuals came from.
    score : MonotoneScore
    mean, information : float
        E ψ and E ψ′.
    pull : array of shape (n,)
        a = (ψ − E ψ)/E ψ′ of every row, which moves φ by vaq.
    """

    phi: Array
    score: MonotoneScore
    mean: float
    information: float
    pull: Array

    def pulls(self, r: Array) -> Array:
        """A of other rows, by their residuals from this fit."""
        return np.asarray((self.score.at(r) - self.mean) / self.information)

    def moves(self, Q: Array, r: Array, v: Array) -> Array:
        """How far rows move φ, with leverages as in HC3 and a score that is an estimate.

        Leverage is the share of its own pull that a row takes back.
        """
        leverage = v * self.score.slopes(r) / self.information * np.einsum("ij,ij->i", Q, Q)
        pull = _LEARNED * self.pulls(r) / np.maximum(1.0 - leverage, 0.1)
        return np.asarray(Q * (v * pull)[:, None])


def fit_by_score(Q: Array, r: Array, v: Array, most: float = np.inf) -> ScoreFit | None:
    """Learn ψ from residuals and take a step by it, in turn; None where that is not worth it.

    In whitened rows the Hessian that noise independent of x makes is E ψ′ times the identity.

    Parameters
    ----------
    Q : array of shape (n, rank)
        Whitened rows, the constant among their directions.
    r : array of shape (n,)
        Residuals of a robust fit.
    v : array of shape (n,)
        Shares of the rows, which add up to one.
    most : float
        The largest variance of a coordinate of φ that is worth it.
    """
    phi, rest = np.zeros(Q.shape[1]), r
    for done in range(_ROUNDS):
        score = learn_score(rest, v)
        if score is None:
            return None
        psi, slopes = score.both(rest)
        information = float(v @ slopes)
        if not information > 0:
            return None
        mean = float(v @ psi)
        pull = v * ((psi - mean) / information)
        variance = float(pull @ pull)
        if not variance <= (most if done else _HOPELESS * most):
            return None
        step = pull @ Q
        phi = phi + step
        rest = r - Q @ phi
        if step @ step <= _SETTLED * variance * phi.size:
            break
    return None if score is None else ScoreFit(phi, score, mean, information, pull / v)
