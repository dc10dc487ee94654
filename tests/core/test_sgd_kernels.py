"""The paper's mode is exact: candidates and model equal Algorithms 1 and 5 written out slowly."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import reference
from scattered import scattered
from tailproof import DCSGDClassifier, DCSGDRegressor, RVSGDClassifier, RVSGDRegressor
from tailproof.core.automatic import blocks_of
from tailproof.core.losses import LOSSES
from tailproof.core.merge import MERGES

N, D, K, SEED = 61, 5, 3, 11
TASKS = [*reference.REGRESSION, *reference.BINARY, "softmax", "three hinges"]
CONSTRAINTS = [("ball", 0.4), ("box", -0.1, 0.25), ("l1_ball", 0.5), ("simplex", 0.7)]
PAPER = {
    "update": "explicit",
    "scale_features": False,
    "average": False,
    "shuffle": False,
    "k": K,
    "random_state": SEED,
    "step_size": 0.03,
    "max_iter": 1,
}
SCHEDULES = [
    (0.03, lambda t: 0.03),
    (("over_root_d", 0.05), lambda t: 0.05 / np.sqrt(D)),
    (("theorem1", 25.0), lambda t: 1 / (25.0 * max(1, t))),
    (("theorem2", 20.0, 0.5, 2.0), lambda t: 2.0 / (0.5 * t + 2 * 2.0 * 20.0)),
]


def test_every_loss_is_covered():
    assert set(LOSSES) == set(reference.REGRESSION) | set(reference.BINARY)
    assert set(MERGES) == set(reference.MERGES)


class Problem:
    """Data of one task, the estimator for it, and the same fit done slowly."""

    def __init__(self, task, dtype=np.float64, method="DC"):
        rng = np.random.default_rng(3)
        X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.7)
        # float32 features are the same numbers in either precision
        self.X = X.astype(np.float32).astype(np.float64)
        self.dtype, self.method = dtype, method
        signal = self.X.sum(axis=1) / 2
        self.classes = {"softmax": 4, "three hinges": 3}.get(task, 1 if task in reference.REGRESSION else 2)
        self.name = {"three hinges": "hinge"}.get(task, task)
        if self.classes > 1:
            noisy = signal + rng.standard_normal(N)
            self.y = np.searchsorted(np.quantile(noisy, np.arange(1, self.classes) / self.classes), noisy)
        elif LOSSES[task].link == "log":
            self.y = rng.gamma(2.0, np.exp(signal / 2) / 2)
        else:
            self.y = signal + rng.standard_t(2.5, N)
        self.outputs = self.classes if self.classes > 2 else 1
        self.start = (
            0.1 * rng.standard_normal((self.outputs, D)),
            0.1 * rng.standard_normal(self.outputs),
        )
        self.target = 2.0 * self.y - 1 if self.classes == 2 else self.y

    def fit(self, *, csr=False, weights=None, intercept=True, **settings):
        kinds = {
            ("DC", True): DCSGDRegressor,
            ("DC", False): DCSGDClassifier,
            ("RV", True): RVSGDRegressor,
            ("RV", False): RVSGDClassifier,
        }
        init = self.start if intercept else self.start[0]
        loss = "log_loss" if self.name == "softmax" else self.name
        more = {"recentre": False} | ({"trim": False} if self.method == "DC" else {"mean": "mean"})
        model = kinds[self.method, self.classes == 1](
            loss, init=init, fit_intercept=intercept, **(PAPER | more | settings)
        )
        X = self.X.astype(self.dtype)
        return model.fit(sparse.csr_array(X) if csr else X, self.y, sample_weight=weights)

    def fits(self, **settings):
        """Of dense rows and of sparse ones."""
        return [self.fit(csr=csr, **settings) for csr in (False, True)]

    def slowly(self, alphas=lambda t: 0.03, passes=1, k=K, shuffle=False, intercept=True, **settings):
        n = N if self.method == "DC" else N // 2
        parts = blocks_of(None, n, k, np.random.SeedSequence(SEED), shuffle, 8 * D)
        start = self.start if intercept else (self.start[0], np.zeros(self.outputs))
        found = []
        for part in parts:
            orders = [part.order(number) for number in range(passes)]
            W, b = reference.sgd(
                self.X, self.target, orders, self.name, alphas, start, intercept=intercept, **settings
            )
            found.append(np.column_stack([W, b]))
        return np.array(found)

    def risks(self, candidates, weights=None):
        """Mean loss of each candidate on the second half of the rows."""
        found = []
        for candidate in candidates:
            losses = []
            for i in range(N // 2, N):
                p = candidate[:, :-1] @ self.X[i] + candidate[:, -1]
                if self.name == "softmax":
                    loss = np.log(np.exp(p).sum()) - p[self.y[i]]
                elif self.outputs > 1:
                    loss = sum(
                        reference.value(self.name, p[o], 1 - 2 * (o != self.y[i])) for o in range(len(p))
                    )
                else:
                    loss = reference.value(self.name, p[0], self.target[i])
                losses.append(loss * (1 if weights is None else weights[i]))
            found.append(np.mean(losses))
        return np.array(found)


def check(models, expected, merge="geometric_median", tolerance=1e-10):
    """candidates_ are the expected ones, and coef_ and intercept_ their merge."""
    points = np.concatenate(
        [expected[:, :, :-1].reshape(len(expected), -1), expected[:, :, -1].reshape(len(expected), -1)],
        axis=1,
    )
    # The slow geometric median is the tolerance of the fast one away; the other merges are exact.
    point = MERGES[merge](points).point if merge == "geometric_median" else reference.MERGES[merge](points)
    for model in models:
        found = model.candidates_.reshape(expected.shape)
        for mine, theirs in zip(found, expected, strict=True):
            assert np.linalg.norm(mine - theirs) <= tolerance * np.linalg.norm(theirs)
        mine = np.concatenate([np.ravel(model.coef_), np.ravel(model.intercept_)])
        assert np.linalg.norm(mine - point) <= tolerance * np.linalg.norm(point)


@pytest.mark.parametrize("task", TASKS)
class TestPaperMode:
    def test_one_pass(self, task):
        problem = Problem(task)
        check(problem.fits(), problem.slowly())

    @pytest.mark.parametrize("schedule", SCHEDULES, ids=["constant", "over_root_d", "theorem1", "theorem2"])
    def test_two_passes_continue_the_schedule(self, task, schedule):
        problem = Problem(task)
        models = problem.fits(max_iter=2, step_size=schedule[0])
        check(models, problem.slowly(schedule[1], passes=2))
        # The first block has the most rows; t_ is its number of updates.
        assert {model.n_iter_ for model in models} == {2}
        assert {model.t_ for model in models} == {2 * len(np.array_split(np.arange(N), K)[0])}

    def test_average_of_the_last_pass(self, task):
        problem = Problem(task)
        check(problem.fits(max_iter=2, average=True), problem.slowly(passes=2, average=True))

    def test_no_intercept(self, task):
        problem = Problem(task)
        models = problem.fits(intercept=False, average=True)
        check(models, problem.slowly(intercept=False, average=True))
        assert all(np.all(model.intercept_ == 0) for model in models)

    @pytest.mark.parametrize("average", [False, True])
    def test_sample_weights(self, task, average):
        problem, weights = Problem(task), np.random.default_rng(5).exponential(size=N)
        models = problem.fits(weights=weights, average=average)
        check(models, problem.slowly(weights=weights, average=average))

    @pytest.mark.parametrize("batch", [3, 1000])
    def test_mini_batches(self, task, batch):
        problem, weights = Problem(task), np.random.default_rng(5).exponential(size=N)
        models = problem.fits(batch_size=batch, weights=weights, max_iter=2, average=True)
        check(models, problem.slowly(batch=batch, weights=weights, passes=2, average=True))
        assert {model.t_ for model in models} == {2 * -(-21 // batch)}

    @pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: c[0])
    @pytest.mark.parametrize("average", [False, True])
    def test_projection(self, task, constraint, average):
        problem = Problem(task)
        models = problem.fits(constraint=constraint, average=average)
        check(models, problem.slowly(constraint=constraint, average=average))

    @pytest.mark.parametrize("penalty", ["l1", "l2", "elasticnet"])
    def test_penalties(self, task, penalty):
        problem = Problem(task)
        l1, l2 = {"l1": (0.5, 0.0), "l2": (0.0, 0.5), "elasticnet": (0.15, 0.35)}[penalty]
        models = problem.fits(penalty=penalty, alpha=0.5, l1_ratio=0.3)
        check(models, problem.slowly(l1=l1, l2=l2))

    def test_everything_at_once(self, task):
        problem, weights = Problem(task), np.random.default_rng(6).exponential(size=N)
        settings = {"constraint": ("l1_ball", 0.6), "average": True}
        models = problem.fits(
            weights=weights, batch_size=2, penalty="elasticnet", alpha=0.1, l1_ratio=0.5,
            max_iter=2, step_size=("theorem2", 20.0, 0.5, 2.0), **settings,
        )  # fmt: skip
        expected = problem.slowly(
            SCHEDULES[3][1], passes=2, batch=2, l1=0.05, l2=0.05, weights=weights, **settings
        )
        check(models, expected)

    def test_single_precision(self, task):
        problem = Problem(task, np.float32)
        check(problem.fits(average=True), problem.slowly(average=True), tolerance=1e-5)
        check(problem.fits(batch_size=2), problem.slowly(batch=2), tolerance=1e-5)

    @pytest.mark.parametrize("average", [False, True])
    def test_algorithm_5(self, task, average):
        problem, weights = Problem(task, method="RV"), np.random.default_rng(7).exponential(size=N)
        models = problem.fits(average=average, weights=weights)
        expected = problem.slowly(average=average, weights=weights)
        risks = problem.risks(expected, weights)
        best = int(np.argmin(risks))
        for model in models:
            assert np.allclose(model.candidates_.reshape(expected.shape), expected, rtol=1e-10, atol=1e-13)
            assert np.allclose(model.validation_risk_, risks, rtol=1e-10)
            assert model.best_index_ == best
            assert np.allclose(np.atleast_2d(model.coef_), expected[best, :, :-1], rtol=1e-10, atol=1e-13)
            assert np.allclose(np.ravel(model.intercept_), expected[best, :, -1], rtol=1e-10, atol=1e-13)

    @pytest.mark.parametrize("intercept", [False, True])
    def test_implicit_updates_end_where_the_proximal_step_does(self, task, intercept):
        problem, weights = Problem(task), np.random.default_rng(5).exponential(size=N)
        models = problem.fits(
            update="implicit", step_size=0.3, weights=weights, intercept=intercept, max_iter=2
        )
        expected = problem.slowly(
            lambda t: 0.3, implicit=True, weights=weights, intercept=intercept, passes=2
        )
        check(models, expected, tolerance=1e-9)

    def test_implicit_updates_with_a_constraint(self, task):
        problem = Problem(task)
        settings = {"constraint": ("ball", 0.4), "average": True}
        models = problem.fits(update="implicit", step_size=0.3, **settings)
        check(models, problem.slowly(lambda t: 0.3, implicit=True, **settings), tolerance=1e-9)


@pytest.mark.parametrize("merge", MERGES)
def test_every_merge(merge):
    problem = Problem("squared_error")
    check(problem.fits(merge=merge, k=7), problem.slowly(k=7), merge)
    slowly = reference.MERGES[merge](problem.slowly(k=7)[:, 0])
    found = problem.fit(merge=merge, k=7)
    assert np.allclose(np.append(found.coef_, found.intercept_), slowly, rtol=1e-7)


@pytest.mark.parametrize("k", [1, 2, N])
def test_extreme_numbers_of_blocks(k):
    problem = Problem("squared_error")
    check(problem.fits(k=k, max_iter=2), problem.slowly(k=k, passes=2))


def test_shuffled_blocks():
    problem = Problem("huber")
    check(problem.fits(shuffle=True, max_iter=2), problem.slowly(shuffle=True, passes=2))


def test_theorem_3_steps_depend_on_the_blocks():
    problem = Problem("squared_error")
    alpha = 1 / (20.0 + np.sqrt(N * 3.0**2 / (2 * K)) / 2.0)
    models = problem.fits(step_size=("theorem3", 20.0, 2.0, 3.0))
    check(models, problem.slowly(lambda t: alpha))


@pytest.mark.parametrize("size", [1.0, 1e20])
def test_sparse_and_dense_implicit_steps_agree_in_single_precision(size):
    """Squares of float32 features must not be rounded, or overflow, in float32."""
    rng = np.random.default_rng(0)
    X = (size * rng.standard_normal((40, 3))).astype(np.float32)
    y = rng.standard_normal(40)
    settings = {
        "scale_features": False,
        "init": np.zeros(3),
        "step_size": 0.1,
        "recentre": False,
        "trim": False,
        "k": 1,
    }
    fits = [
        DCSGDRegressor(random_state=0, max_iter=1, **settings).fit(data, y).coef_
        for data in (X, sparse.csr_array(X))
    ]
    assert np.allclose(fits[0], fits[1], rtol=1e-10, atol=0)


def test_input_is_left_alone():
    problem = Problem("squared_error")
    before = problem.X.copy(), problem.y.copy(), problem.start[0].copy(), problem.start[1].copy()
    problem.fit(max_iter=2)
    after = problem.X, problem.y, problem.start[0], problem.start[1]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("alpha", [1e-12, 1e-7, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("penalty", ["l1", "l2", "elasticnet"])
@pytest.mark.parametrize("kind", [DCSGDRegressor, DCSGDClassifier])
def test_penalties_of_sparse_rows_wait_and_change_nothing(kind, penalty, alpha):
    """Features that few rows have are shrunk late, by a formula for many steps; dense rows, step by step."""
    rng = np.random.default_rng(0)
    X = scattered((600, 40), 0.04, rng)
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(600)
    y = y if kind is DCSGDRegressor else np.digitize(y, [-0.3, 0.3])
    model = kind(
        k=3, step_size=0.2, max_iter=3, penalty=penalty, alpha=alpha, l1_ratio=0.4, scale_features=False,
        random_state=0,
    )  # fmt: skip
    weights = rng.uniform(0.5, 2.0, 600)
    thin = clone(model).fit(X, y, sample_weight=weights)
    full = clone(model).fit(X.toarray(), y, sample_weight=weights)
    np.testing.assert_allclose(thin.candidates_, full.candidates_, rtol=1e-7, atol=1e-11)
