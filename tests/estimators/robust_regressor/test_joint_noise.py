"""Slopes by the size of the noise and its law, both learned, beside a slow reference of what they solve."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

import tailproof as tp
from tailproof.estimators.robust_regressor import proposals
from tailproof.estimators.robust_regressor.dependent_noise import SizeFit
from tailproof.estimators.robust_regressor.joint_noise import JointNoise, fit_jointly
from tailproof.estimators.robust_regressor.monotone_score import learn_score
from tailproof.estimators.robust_regressor.noise_growth import slopes_of_sizes
from tailproof.estimators.robust_regressor.scale_family import ScaleFamily


def skewed(seed, n, sigma=1.2):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    return z, z.sum(axis=1) + np.exp(0.7 * z[:, 0]) * (rng.lognormal(0, sigma, n) - np.exp(sigma**2 / 2))


def joint_of(seed, n, v=None):
    z, y = skewed(seed, n)
    Q, f = np.column_stack([z, np.ones(n)]), np.column_stack([z, np.abs(z)])
    v = np.full(n, 1 / n) if v is None else v
    return JointNoise(Q, y, f - v @ f, v)


def size_fit(seed, n):
    z, y = skewed(seed, n)
    Q, f = np.column_stack([z, np.ones(n)]), np.column_stack([z, np.abs(z), np.ones(n)])
    family = ScaleFamily(Q, y, f, np.full(n, 1 / n))
    return SizeFit.of(family, family.solve(np.log(np.abs(y - z.sum(axis=1)) + 0.3)), np.arange(2))


def slow_scores(joint, phi, gamma):
    """Row by row, as the formulas have them."""
    n, v = len(joint.y), joint.v
    log = joint.features @ gamma
    s = np.exp(np.clip(log, *np.quantile(log, [0.001, 0.999])))
    e = np.array([(joint.y[i] - joint.Q[i] @ phi) / s[i] for i in range(n)])
    score = learn_score(e, v)
    psi = np.array([np.interp(one, score.knots, score.values) for one in e])
    h = psi - sum(v[i] * psi[i] for i in range(n))
    m = sum(v[i] * joint.Q[i] / s[i] for i in range(n))
    mean = sum(v[i] * e[i] for i in range(n))
    spread = sum(v[i] * (e[i] - mean) ** 2 for i in range(n))
    tall = sum(v[i] * h[i] * e[i] for i in range(n))
    of_phi = [h[i] * (joint.Q[i] / s[i] - m) + m * e[i] / spread for i in range(n)]
    of_gamma = [(h[i] * e[i] - tall) * joint.features[i] for i in range(n)]
    return np.column_stack([of_phi, of_gamma])


@pytest.mark.parametrize("even", [True, False])
def test_scores_are_those_of_the_formulas(even):
    v = np.random.default_rng(1).uniform(0.2, 1.0, 150)
    joint = joint_of(0, 150, None if even else v / v.sum())
    phi, gamma = np.array([1.1, 0.9, 0.1]), np.array([0.6, 0.1, 0.0, 0.1])
    place = joint.at(phi, gamma)
    slow = joint.v[:, None] * slow_scores(joint, phi, gamma)
    np.testing.assert_allclose(joint.moved(place, np.eye(7)), slow, rtol=1e-9, atol=1e-14)
    matrix = np.random.default_rng(0).standard_normal((7, 3))
    np.testing.assert_allclose(joint.moved(place, matrix), slow @ matrix, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("even", [True, False])
def test_sums_and_covariances_are_those_of_rows(even):
    v = np.random.default_rng(1).uniform(0.2, 1.0, 150)
    joint = joint_of(0, 150, None if even else v / v.sum())
    place = joint.at(np.array([1.1, 0.9, 0.1]), np.array([0.6, 0.1, 0.0, 0.1]))
    scores = joint.moved(place, np.eye(7))
    np.testing.assert_allclose(joint.sums(place), scores.sum(axis=0), rtol=1e-9, atol=1e-14)
    every = np.column_stack([joint.Q / place.sizes[:, None], joint.features])
    slow = np.cov(every.T, aweights=joint.v, ddof=0)
    np.testing.assert_allclose(joint.covariance(place), slow, atol=1e-12 * np.abs(slow).max())


def test_squares_are_those_of_scores_where_noise_is_alike_in_all_rows():
    n = 200_000
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 1))
    noise = np.exp(0.3 * z[:, 0]) * (rng.gamma(4, size=n) - 4)
    joint = JointNoise(np.column_stack([z, np.ones(n)]), z[:, 0] + noise, z - z.mean(), np.full(n, 1 / n))
    place = joint.at(np.array([1.0, 0.0]), np.array([0.3]))
    scores = joint.moved(place, np.eye(3))
    slow = scores.T @ scores
    found = joint.squares(place, joint.covariance(place))
    np.testing.assert_allclose(found, slow, atol=0.03 * np.abs(slow).max())


def test_derivatives_are_those_of_sums_of_scores():
    """By differences, with ψ and weights as they are; many rows, since noise is taken to be alike in all."""
    n = 200_000
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 1))
    y = z[:, 0] + np.exp(0.3 * z[:, 0]) * (rng.gamma(4, size=n) - 4)
    joint = JointNoise(np.column_stack([z, np.ones(n)]), y, z - z.mean(), np.full(n, 1 / n))
    start = np.array([1.0, 0.0, 0.3])
    here = joint.at(start[:2], start[2:])
    score = learn_score(here.noise, joint.v)

    def sums(at):
        log = joint.features @ at[2:]
        s = np.exp(np.clip(log, *np.quantile(log, [0.001, 0.999])))
        e = (y - joint.Q @ at[:2]) / s
        h = score.at(e) - score.at(e).mean()
        a = joint.Q / s[:, None]
        of_phi = (h[:, None] * (a - a.mean(axis=0))).mean(axis=0) + a.mean(axis=0) * e.mean() / e.var()
        return np.append(of_phi, ((h * e)[:, None] * joint.features).mean(axis=0))

    steps = 1e-3 * np.eye(3)
    slow = np.column_stack([(sums(start - step) - sums(start + step)) / 2e-3 for step in steps])
    np.testing.assert_allclose(
        joint.derivatives(here, joint.covariance(here)), slow, atol=0.06 * np.abs(slow).max()
    )


def test_slopes_are_found_better_than_by_weights_alone():
    constant, gaps, promised = np.array([0.0, 0.0, 1.0]), [], []
    for seed in range(8):
        fit = size_fit(seed, 800)
        joint = fit_jointly(fit, constant)
        gaps.append([np.sum((one.phi[:2] - 1) ** 2) for one in (joint, fit)])
        promised.append([np.sum(one.moves[:, :2] ** 2) for one in (joint, fit)])
    better, promise = np.divide(*np.mean(gaps, axis=0)), np.divide(*np.mean(promised, axis=0))
    assert better < 0.5
    assert better / 3 < promise < 1.0


def test_units_of_targets_do_not_matter():
    joint, start = joint_of(3, 400), (np.array([1.0, 1.0, 0.0]), np.array([0.7, 0.0, 0.0, 0.0]))
    larger = JointNoise(joint.Q, 1e6 * joint.y, joint.features, joint.v)
    constant = np.array([0.0, 0.0, 1.0])
    place, moves = joint.solve(*start, constant)
    there, moved = larger.solve(1e6 * start[0], start[1], constant)
    np.testing.assert_allclose(there.phi, 1e6 * place.phi, rtol=1e-6)
    np.testing.assert_allclose(moved, 1e6 * moves, rtol=1e-4, atol=1e-6 * np.abs(moved).max())


def test_targets_that_are_alike_teach_nothing():
    joint = joint_of(0, 100)
    still = JointNoise(joint.Q, np.zeros(100), joint.features, joint.v)
    assert still.solve(np.zeros(3), np.zeros(4), np.array([0.0, 0.0, 1.0])) is None


def test_sizes_beyond_all_numbers_teach_nothing():
    joint = joint_of(0, 100)
    assert joint.solve(np.zeros(3), np.full(4, 1e4), np.array([0.0, 0.0, 1.0])) is None


def both_models(X, y, monkeypatch):
    """By law and size, and by size alone."""
    ours = tp.RobustRegressor(random_state=0).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(proposals, "fit_jointly", lambda *_: None)
        return ours, tp.RobustRegressor(random_state=0).fit(X, y)


def test_the_model_is_better_than_by_weights_alone(monkeypatch):
    gaps = []
    for seed in range(8):
        models = both_models(*skewed(seed, 1_500), monkeypatch)
        assert any("once more" in remark for remark in models[0].report_.remarks)
        gaps.append([np.sum((one.coef_ - 1) ** 2) for one in models])
    assert np.divide(*np.mean(gaps, axis=0)) < 0.8


@pytest.mark.parametrize(
    ("draw", "size", "most"),
    [
        # One column hardly tells its slope from the size of the noise; the law tells the others all the same.
        (lambda rng: rng.lognormal(0, 0.75, (2_000, 8)), lambda x: np.exp(np.minimum(0.7 * x, 5)), 0.4),
        (lambda rng: rng.standard_normal((2_000, 4)), lambda x: 1 + np.abs(x), 0.7),
    ],
    ids=["one side", "both sides"],
)
def test_slopes_across_the_columns_that_noise_grows_along(draw, size, most, monkeypatch):
    gaps = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = draw(rng)
        y = X.sum(axis=1) + size(X[:, 0]) * (rng.lognormal(0, 1.2, 2_000) - np.exp(0.72))
        gaps.append([np.sum((one.coef_[1:] - 1) ** 2) for one in both_models(X, y, monkeypatch)])
    assert np.divide(*np.median(gaps, axis=0)) < most


def test_sizes_that_are_modelled_wrongly_do_not_decide():
    """Where s(x) = 1 + x is linear as the mean is, no edge tells the two apart: there the mean has to."""
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.lognormal(0, 0.75, (1_000, 3))
        y = X.sum(axis=1) + (1 + X[:, 0]) * (rng.lognormal(0, 1.2, 1_000) - np.exp(0.72))
        model = tp.RobustRegressor(random_state=0).fit(X, y)
        Z = np.column_stack([X, np.ones(1_000)])
        plain = np.linalg.lstsq(Z, y)[0]
        ours = np.append(model.coef_, model.intercept_)
        gaps.append([np.sum((Z @ (one - [1, 1, 1, 0])) ** 2) for one in (ours, plain)])
    assert np.divide(*np.median(gaps, axis=0)) < 0.6


def test_noise_that_grows_on_both_sides_is_noticed():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(6):
        X = rng.standard_normal((1_500, 3))
        y = X.sum(axis=1) + (1 + np.abs(X[:, 0])) ** 2 * rng.standard_t(3, 1_500)
        model = tp.RobustRegressor(random_state=0).fit(X, y)
        assert any("grows along some columns" in remark for remark in model.report_.remarks)
        gaps.append([np.sum((one - 1) ** 2) for one in (model.coef_, np.linalg.lstsq(X, y)[0])])
    assert np.divide(*np.mean(gaps, axis=0)) < 0.35


def test_columns_that_are_much_alike_tell_together_that_sizes_grow():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((500, 1))
    f = shared + 0.1 * rng.standard_normal((500, 8))
    v = np.full(500, 1 / 500)
    grows = slopes_of_sizes(f, 0.4 * f[:, 0] + rng.standard_normal(500), v, 9)
    assert grows.chance_of_any(500, 9) > 0.01
    assert grows.chance(500, 9) < 1e-3


@pytest.mark.parametrize("alike", [False, True])
def test_slopes_and_their_common_chance_are_those_of_pseudo_inverses(alike):
    rng = np.random.default_rng(0)
    f, v = rng.standard_normal((200, 4)), rng.uniform(0.5, 2.0, 200)
    f[:, 3] = f[:, 0] - 2 * f[:, 1] if alike else f[:, 3]
    sizes, v = f[:, 0] * 0.2 + rng.gumbel(size=200), v / v.sum()
    found = slopes_of_sizes(f, sizes, v, 5)
    centred, rank = f - v @ f, 4 - alike
    slopes = np.linalg.lstsq(centred * np.sqrt(v)[:, None], (sizes - v @ sizes) * np.sqrt(v), rcond=1e-9)[0]
    np.testing.assert_allclose(found.values, slopes, rtol=1e-9)
    chi = found.values @ np.linalg.pinv(found.covariance, rcond=1e-9, hermitian=True) @ found.values
    np.testing.assert_allclose(found.chance_of_all(200), stats.f.sf(chi / rank, rank, 199 - rank), rtol=1e-6)


def test_chances_are_honest():
    rng = np.random.default_rng(0)
    f, v = rng.standard_normal((300, 6)), np.full(300, 1 / 300)
    found = [slopes_of_sizes(f, rng.gumbel(size=300), v, 7) for _ in range(400)]
    for chances in ([one.chance(300, 7) for one in found], [one.chance_of_all(300) for one in found]):
        assert 0.06 < np.mean(np.array(chances) <= 0.1) < 0.14


@pytest.mark.parametrize("seed", [208, 211, 225])
def test_sizes_alike_on_both_sides_do_not_lead_far_from_the_blend(seed):
    """Few claims among zeros, whose size is that of the mean: weights by it were 2.6 to 4.2 times as bad."""
    n, d = 4_500, 5
    rng = np.random.default_rng([seed, n, d])
    truth, X = rng.normal(size=d), rng.uniform(-1, 1, (n, d))
    claims = np.where(rng.random(n) < 0.15, rng.lognormal(size=n), 0.0) - 0.15 * np.exp(0.5)
    y = X @ truth + (np.abs(X @ truth) + 0.1) * claims
    risks = [
        np.sum((model.coef_ - truth) ** 2) / 3 + model.intercept_**2
        for model in (tp.RobustRegressor(random_state=0).fit(X, y), LinearRegression().fit(X, y))
    ]
    assert risks[0] < risks[1]
