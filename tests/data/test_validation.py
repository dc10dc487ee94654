import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailproof import RVSGDRegressor, fit
from tailproof.core.losses import LOSSES
from tailproof.core.means import MEANS
from tailproof.core.numerics.m_estimates import PSI, m_estimates
from tailproof.core.validate import validate, validate_with_safe_intervals
from tailproof.data.dealing import Dealing
from tailproof.data.readers.batches import Batch
from tailproof.data.sums import Losses
from tailproof.data.validation import BY_SUMS, validate_by_sums


def measured(samples, others=False):
    """Losses that are the given samples: the squared loss of a constant prediction 0 at y = sqrt(2u)."""
    batches = []
    for number, sample in enumerate(samples):
        X = np.zeros((sample.size, 1))
        nothing = np.empty(0, dtype=np.intp)
        batches.append(Batch(number, 0, X, np.sqrt(2 * sample), np.empty(0), nothing))
    u = np.concatenate(samples)
    centre = np.array([np.median(u)])
    losses = Losses(
        LOSSES["squared_error"],
        np.zeros((1, 1, 1)),
        np.zeros((1, 1)),
        np.array([0]),
        Dealing(1, len(samples), 0, held_out=1.0),
        centre=centre,
        scale=np.array([np.median(np.abs(u - centre)) or 1.0]),
        others=others,
    )
    rounds = []

    def reduce(measure):
        rounds.append(type(measure).__name__)
        return measure.total([measure.over_piece([batch]) for batch in batches])

    return losses, reduce, rounds


@pytest.mark.parametrize("mean", sorted(BY_SUMS))
@pytest.mark.parametrize("law", ["exponential", "pareto", "lognormal", "constant"])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e12])
def test_risks_are_those_of_all_losses_together(mean, law, size):
    rng = np.random.default_rng(3)
    draw = {
        "exponential": lambda n: rng.exponential(size=n),
        "pareto": lambda n: rng.pareto(2.5, n),
        "lognormal": lambda n: rng.lognormal(0, 1.5, n),
        "constant": np.ones,
    }[law]
    samples = [size * draw(n) for n in (3_000, 500, 4_000)]
    losses, reduce, _ = measured(samples)
    found = validate_by_sums(reduce, losses, mean, 0.05)
    u = np.concatenate(samples)
    whole = validate_with_safe_intervals([u], mean, 0.05)
    assert found.mean == whole.mean
    assert found.in_doubt.tolist() == whole.in_doubt.tolist()
    # Blocks of a median of means are dealt otherwise, so estimates differ by less than their own error.
    error = u.std() / np.sqrt(u.size)
    assert abs(found.risk[0] - whole.risk[0]) <= 1.0 * error + 1e-9 * size
    assert found.high[0] - found.low[0] == pytest.approx(
        whole.high[0] - whole.low[0], rel=0.35, abs=1e-6 * size
    )


def test_catoni_solves_its_equation_to_the_last_digits():
    rng = np.random.default_rng(0)
    samples = [rng.pareto(2.2, 2_000) for _ in range(5)]
    losses, reduce, rounds = measured(samples)
    found = validate_by_sums(reduce, losses, "catoni", 0.05)
    u = np.concatenate(samples)[None]
    # The same equation at the same width, which follows from the estimate itself.
    values = (u - losses.centre[0]) / losses.scale[0]
    from tailproof.data.sums import Moments
    from tailproof.data.validation import _as, summary

    about = summary(reduce(_as(Moments, losses, parts=3)))
    log_term = 2 * np.log(2 / 0.05)
    n = u.size
    width = about.robust_sd * np.sqrt(n / log_term * (1 + log_term / (n - log_term)))
    exact = m_estimates(values, np.empty(0), np.median(values, axis=1), width, PSI["polynomial"])
    assert found.risk[0] == pytest.approx(losses.centre[0] + losses.scale[0] * exact[0], rel=1e-9)
    assert rounds.count("Influence") <= 5


@pytest.mark.parametrize(
    ("law", "in_doubt"), [("exponential", False), ("claims", True), ("squared", True), ("hits", False)]
)
def test_the_doubt_about_the_variance_does_not_depend_on_where_the_losses_are(law, in_doubt):
    rng = np.random.default_rng(5)
    u = {
        "exponential": rng.exponential(size=6_000),
        "claims": rng.pareto(1.5, 6_000) * (rng.uniform(size=6_000) < 0.2),
        "squared": rng.pareto(2.1, 6_000) ** 2,
        "hits": (rng.uniform(size=6_000) < 0.1).astype(float),
    }[law]
    losses, reduce, rounds = measured(np.array_split(u, 7))
    found, whole = validate_by_sums(reduce, losses, "catoni", 0.05), validate_with_safe_intervals([u])
    assert found.in_doubt.tolist() == whole.in_doubt.tolist() == [in_doubt]
    assert found.low[0] == pytest.approx(whole.low[0], rel=0.02)
    assert found.high[0] == pytest.approx(whole.high[0], rel=0.02)
    # No look at the data more than the moments take.
    assert set(rounds) == {"TailMoments", "Influence"}


def test_intervals_end_at_zero_only_where_no_loss_is_negative():
    losses, _, _ = measured([np.array([0.0, 0.1, 0.3])])
    for shift in (0.0, -0.1):
        sample = shift + np.array([0.0, 0.1, 0.2, 50.0])
        scaled = (sample - losses.centre[0]) / losses.scale[0]
        found = validate_by_sums(lambda look, s=scaled: look.of_model(0, s)[None], losses, "mean", 0.05)
        whole = validate_with_safe_intervals([sample], "mean")
        assert (found.low[0] == 0) == (whole.low[0] == 0) == (shift == 0)


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 60))
def test_small_samples_fall_back_as_elsewhere(seed, n):
    sample = np.random.default_rng(seed).exponential(size=n)
    losses, reduce, _ = measured([sample])
    assert validate_by_sums(reduce, losses, "catoni", 0.05).mean == validate([sample], "catoni", 0.05).mean


def test_means_that_are_no_sums_are_refused():
    losses, reduce, _ = measured([np.ones(10)])
    assert set(MEANS) - set(BY_SUMS) == {"median", "truncated_mean"}
    with pytest.raises(ValueError, match="must be one of"):
        validate_by_sums(reduce, losses, "truncated_mean", 0.05)


def test_a_loss_that_overflowed_loses():
    losses, reduce, _ = measured([np.array([1.0, 2.0, np.inf])])
    assert validate_by_sums(reduce, losses, "catoni", 0.05).risk[0] == np.inf


def test_a_fit_of_chunks_says_where_intervals_cannot_be_relied_on():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 2))
    for noise, said in ((rng.uniform(-1, 1, 3_000), False), (rng.standard_t(1.5, 3_000), True)):
        y = X[:, 0] + noise
        chunks = [(X[i : i + 500], y[i : i + 500]) for i in range(0, 3_000, 500)]
        for report in (
            fit(RVSGDRegressor(k=3, random_state=0), iter(chunks)).report_,
            RVSGDRegressor(k=3, random_state=0).fit(X, y).report_,
        ):
            assert (report.caution is not None) == said


@pytest.mark.parametrize("mean", sorted(BY_SUMS))
def test_losses_beyond_a_gap_are_left_out_on_request(mean):
    u = np.random.default_rng(0).exponential(size=6_000)
    u[::100] = 1e9
    losses, reduce, _ = measured(np.array_split(u, 3))
    assert validate_by_sums(reduce, losses, mean, 0.05).risk[0] > 10
    assert validate_by_sums(reduce, losses, mean, 0.05, resistant=True).risk[0] == pytest.approx(1.0, abs=0.1)
    u[::50] = 1e9  # too many to be errors
    losses, reduce, _ = measured(np.array_split(u, 3))
    assert validate_by_sums(reduce, losses, mean, 0.05, resistant=True).risk[0] > 10


@pytest.mark.parametrize("law", ["log-normal(2.5)", "Pareto(1.2)", "normal"])
def test_honest_losses_have_no_gap(law):
    draw = {
        "log-normal(2.5)": lambda rng: rng.lognormal(0, 2.5, 1_000),
        "Pareto(1.2)": lambda rng: rng.pareto(1.2, 1_000),
        "normal": lambda rng: rng.standard_normal(1_000),
    }[law]
    gaps = 0
    for seed in range(50):
        squares = draw(np.random.default_rng(seed)) ** 2
        losses, reduce, rounds = measured([squares])
        validate_by_sums(reduce, losses, "mean", 0.05, resistant=True)
        gaps += rounds.count("TailMoments") > 1
    assert gaps <= 1
