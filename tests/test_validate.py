import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailproof.means import MEANS, interval
from tailproof.validate import FALLBACKS, mean_for, validate


@pytest.mark.parametrize("mean", MEANS)
@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 6))
def test_risks_are_means_and_the_winner_is_least(mean, seed, k):
    rng = np.random.default_rng(seed)
    losses = [rng.pareto(2.5, int(rng.integers(120, 300))) for _ in range(k)]
    found = validate(losses, mean, 0.1)
    assert np.allclose(found.risk, [MEANS[mean](sample, delta=0.1) for sample in losses], rtol=1e-12)
    assert found.best == np.argmin(found.risk)
    assert found.mean == mean
    if mean == "median":
        assert np.isnan(found.low).all()
    else:
        ends = [interval(sample, mean, 0.1) for sample in losses]
        assert np.allclose(found.low, [end.low for end in ends])
        assert np.allclose(found.high, [end.high for end in ends])


def test_ties_go_to_the_first():
    assert validate([np.ones(50), np.zeros(50), np.zeros(50)]).best == 1


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_an_overflowed_loss_is_infinite_risk(bad):
    found = validate([np.append(np.zeros(99), bad), np.ones(100)])
    assert found.best == 1
    assert found.risk.tolist() == [np.inf, 1.0]


@pytest.mark.parametrize("delta", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("mean", MEANS)
def test_fallbacks_are_allowed_and_needed(mean, delta):
    for n in range(1, 300):
        used = mean_for(mean, n, delta)
        MEANS[used](np.ones(n), delta=delta)
        chain = [mean]
        while chain[-1] in FALLBACKS:
            chain.append(FALLBACKS[chain[-1]])
        for skipped in chain[: chain.index(used)]:
            with pytest.raises(ValueError, match="needs at least"):
                MEANS[skipped](np.ones(n), delta=delta)


def test_smallest_sample_decides():
    found = validate([np.ones(200), np.zeros(5)], "catoni")
    assert found.mean == "mean"
    assert found.best == 1


def test_one_row():
    found = validate([np.array([3.0])])
    assert found.risk.tolist() == [3.0]
    assert math.isnan(found.low[0])


def test_unknown_mean():
    with pytest.raises(ValueError, match="mean must be one of"):
        validate([np.ones(5)], "mode")
