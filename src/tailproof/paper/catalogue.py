"""All experiments by name: the simulated ones of the paper, those on real data, and those beyond it."""

from __future__ import annotations

from tailproof.core.lookup import lookup
from tailproof.paper.beyond.claims import BEYOND_CLAIMS
from tailproof.paper.beyond.experiments import BEYOND_EXPERIMENTS
from tailproof.paper.claims import CLAIMS
from tailproof.paper.experiments import EXPERIMENTS, Experiment
from tailproof.paper.judging import Claim
from tailproof.paper.real.claims import REAL_CLAIMS
from tailproof.paper.real.experiments import REAL_EXPERIMENTS
from tailproof.paper.variants import Choices

ALL_EXPERIMENTS = EXPERIMENTS | REAL_EXPERIMENTS | BEYOND_EXPERIMENTS


def get_experiment(name: str, choices: Choices | None = None) -> Experiment:
    """Look an experiment up by name.

    Examples
    --------
    >>> [setting.name for setting in get_experiment("sc-e1").settings]
    ['normal', 'lognormal']
    """
    return lookup("experiment", name, ALL_EXPERIMENTS)(choices or Choices())


def claims_of(name: str) -> list[Claim]:
    """Return the claims that are measured on an experiment."""
    return [claim for claim in (*CLAIMS, *REAL_CLAIMS, *BEYOND_CLAIMS) if claim.experiment == name]
