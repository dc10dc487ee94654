"""All experiments of the paper by name: the simulated ones and those on real data."""

from __future__ import annotations

from tailproof.core.lookup import lookup
from tailproof.paper.claims import CLAIMS
from tailproof.paper.experiments import EXPERIMENTS, Experiment
from tailproof.paper.judging import Claim
from tailproof.paper.real.claims import REAL_CLAIMS
from tailproof.paper.real.experiments import REAL_EXPERIMENTS
from tailproof.paper.variants import Choices

ALL_EXPERIMENTS = EXPERIMENTS | REAL_EXPERIMENTS


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
    return [claim for claim in (*CLAIMS, *REAL_CLAIMS) if claim.experiment == name]
