"""Rows that come in batches."""

import pickle

import numpy as np
import pytest
from scipy import sparse

import tailproof as tp
from linear_models import (
    CLASSIFIERS,
    DC,
    REGRESSORS,
    RV,
    close,
    data,
    equal,
    every_estimator,
)
from tailproof import DCSGDRegressor
from tailproof.core.theory import blocks_for
from tailproof.model_files.files import _read


@pytest.mark.parametrize("csr", [False, True])
class TestPartialFit:
    def feed(self, model, X, y, cuts, csr, **first):
        for rows in np.split(np.arange(len(y)), cuts):
            part = sparse.csr_array(X[rows]) if csr else X[rows]
            model.partial_fit(part, y[rows], **first)
            first = {}
        return model

    @every_estimator
    @pytest.mark.parametrize("schedule", [0.02, ("theorem2", 5.0, 0.1)])
    def test_cuts_make_no_difference_to_the_path(self, kind, schedule, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        settings = {"k": 3, "average": False, "init": np.zeros(4), "step_size": schedule, "random_state": 0}
        fits = [
            self.feed(kind(scale_features=False, **settings), X, y, cuts, csr, **first)
            for cuts in ([], [100, 101, 250], range(7, 400, 7))
        ]
        for fit in fits[1:]:
            assert fit.t_ == fits[0].t_
            assert np.allclose(fit.candidates_, fits[0].candidates_, rtol=1e-10)
            assert close(fit, fits[0])

    @every_estimator
    def test_first_batch_may_be_smaller_than_k(self, kind, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=5, random_state=0), X, y, [2], csr, **first)
        assert len(model.candidates_) == 5

    @every_estimator
    def test_as_good_as_fit(self, kind, csr):
        X, y = data(kind, n=6_000)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=10, random_state=0), X, y, range(500, 6_000, 500), csr, **first)
        whole = kind(k=10, random_state=0).fit(X, y)
        assert model.score(X, y) > whole.score(X, y) - 0.02
        if kind in REGRESSORS:
            assert np.allclose(model.coef_, whole.coef_, atol=0.2)

    @every_estimator
    def test_t_counts_updates(self, kind, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=4, random_state=0), X, y, [], csr, **first)
        one = model.t_
        assert one == 100 if kind in DC else 0 < one < 100
        self.feed(model, X, y, [], csr)
        assert model.t_ > one
        assert kind in RV or model.t_ == 200

    @pytest.mark.parametrize("kind", CLASSIFIERS)
    def test_classes(self, kind, csr):
        X, y = data(kind, classes=4)
        names = np.array(["ant", "bee", "cat", "dog", "eel"])
        model = kind(k=2, random_state=0)
        self.feed(model, X, names[y], [100], csr, classes=names[::-1])
        assert model.classes_.tolist() == sorted(names)
        assert model.coef_.shape == (5, 4)
        with pytest.raises(ValueError, match="fox"):
            model.partial_fit(X[:2], ["ant", "fox"])
        part = X[:30]
        kind(random_state=0).partial_fit(part, np.full(30, "ant"), classes=["ant", "bee"])

    @pytest.mark.parametrize("kind", CLASSIFIERS)
    def test_classes_are_needed_in_the_first_call(self, kind, csr):
        X, y = data(kind)
        with pytest.raises(ValueError, match="classes"):
            kind().partial_fit(X, y)

    @pytest.mark.parametrize("kind", CLASSIFIERS)
    def test_other_classes_in_a_later_call_are_an_error(self, kind, csr):
        X, y = data(kind)
        model = kind(random_state=0).partial_fit(X, y, classes=[0, 1])
        model.partial_fit(X, y, classes=[0, 1])
        with pytest.raises(ValueError, match="classes"):
            model.partial_fit(X, y, classes=[0, 1, 2])

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_third_argument_of_a_regressor_is_not_swallowed(self, kind, csr):
        """As in scikit-learn, a regressor's partial_fit(X, y, sample_weight) has weights third."""
        X, y = data(kind)
        weights = np.random.default_rng(0).exponential(size=400)
        named = kind(k=3, random_state=0).partial_fit(X, y, sample_weight=weights)
        assert equal(named, kind(k=3, random_state=0).partial_fit(X, y, weights))

    @every_estimator
    def test_number_of_features_is_checked(self, kind, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(random_state=0), X, y, [], csr, **first)
        with pytest.raises(ValueError, match="features"):
            model.partial_fit(X[:, :2], y)

    @every_estimator
    def test_pickled_in_the_middle(self, kind, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=3, random_state=0), X, y, [], csr, **first)
        copy = pickle.loads(pickle.dumps(model))
        assert equal(self.feed(copy, X, y, [], csr), self.feed(model, X, y, [], csr))
        # Held-out rows may travel along, training rows must not.
        assert len(pickle.dumps(copy)) < 10 * X.nbytes

    @every_estimator
    @pytest.mark.parametrize("k", ["auto", 3])  # with k(δ) blocks, these rows are too few to settle on scales
    def test_saved_in_the_middle(self, kind, csr, k, tmp_path):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=k, random_state=0), X[:101], y[:101], [], csr, **first)
        tp.save(model, tmp_path / "m")
        loaded = tp.load(tmp_path / "m")
        tp.save(loaded, tmp_path / "again")
        assert _read(tmp_path / "again")[0] == _read(tmp_path / "m")[0]
        assert equal(self.feed(loaded, X, y, [150], csr), self.feed(model, X, y, [150], csr))
        assert tp.load(tmp_path / "m").fit(X, y)._stream is None

    @pytest.mark.parametrize("kind", CLASSIFIERS)
    def test_softmax_pickled_in_the_middle(self, kind, csr, tmp_path):
        X, y = data(kind, classes=3)
        model = self.feed(kind(k=3, random_state=0), X, y, [], csr, classes=[0, 1, 2])
        copy = pickle.loads(pickle.dumps(model))
        tp.save(model, tmp_path / "m")
        expected = self.feed(model, X, y, [], csr)
        assert equal(self.feed(copy, X, y, [], csr), expected)
        assert equal(self.feed(tp.load(tmp_path / "m"), X, y, [], csr), expected)

    def test_a_first_call_that_fails_leaves_nothing(self, csr):
        X, y = data(n=3_000, d=5)
        model = DCSGDRegressor(k=3, update="explicit", step_size=50.0, scale_features=False, random_state=0)
        with pytest.raises(ValueError, match="diverged"):
            model.partial_fit(X, y)
        model.set_params(step_size=0.01)
        assert model.partial_fit(X[:, :2], y).coef_.shape == (2,)

    @every_estimator
    def test_small_batches_get_as_many_candidates_in_the_end(self, kind, csr):
        X, y = data(kind, n=2_000)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(random_state=0), X * [1e-3, 1, 1, 1e3], y, range(25, 2_000, 25), csr, **first)
        assert len(model.candidates_) == blocks_for(0.05, "dc" if kind in DC else "rv")
        assert model.score(X * [1e-3, 1, 1, 1e3], y) > kind(random_state=0).fit(X, y).score(X, y) - 0.05

    @every_estimator
    def test_the_report_is_that_of_the_stream(self, kind, csr):
        X, y = data(kind, n=2_000)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=5, random_state=7), X, y, [300, 1_100], csr, **first)
        report = model.report_
        assert report.block_sizes.sum() == (2_000 if kind in DC else pytest.approx(1_000, abs=100))
        assert report.gradient_evaluations == report.block_sizes.sum()
        assert (report.k, report.why_k, report.seed) == (5, "set by the user", 7)
        assert report.excluded.size == 0
        assert len(report.distances if kind in DC else report.validation_risk) == 5
        assert set(report.seconds) == {"prepare", "train", "combine"}
        assert "k " in str(report)

    @every_estimator
    def test_fit_starts_anew(self, kind, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        model = self.feed(kind(k=3, random_state=0), X, y, [], csr, **first)
        assert equal(model.fit(X, y), kind(k=3, random_state=0).fit(X, y))

    @pytest.mark.parametrize("kind", DC)
    def test_weights(self, kind, csr):
        X, y = data(kind)
        first = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
        weights = np.random.default_rng(0).integers(0, 2, 400).astype(float)
        settings = {
            "k": 3,
            "random_state": 0,
            "scale_features": False,
            "init": np.zeros(4),
            "step_size": 0.02,
        }
        one = kind(**settings).partial_fit(X, y, sample_weight=weights, **first)
        kept = weights > 0
        assert close(one, kind(**settings).partial_fit(X[kept], y[kept], **first))


def test_a_fit_is_not_undone_by_a_tenth_more_rows():
    errors = np.zeros(2)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal(10)
        X = rng.standard_normal((44_000, 10))
        y = X @ truth + rng.standard_t(2.2, 44_000)
        model = DCSGDRegressor(random_state=0).fit(X[:40_000], y[:40_000])
        errors[0] += np.sum((model.coef_ - truth) ** 2)
        for rows in np.split(np.arange(40_000, 44_000), 8):
            model.partial_fit(X[rows], y[rows])
        errors[1] += np.sum((model.coef_ - truth) ** 2)
    assert errors[1] < 1.4 * errors[0]
