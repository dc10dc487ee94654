"""What scikit-learn asks of an estimator: its checks, its kinds of input, seeds and threads."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from linear_models import (
    ESTIMATORS,
    UNSETTLED,
    close,
    data,
    equal,
    every_estimator,
)

DEALT = "rows are dealt to blocks at random: a row of weight 2 is in one block, its two copies may be in two"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": DEALT,
    "check_sample_weight_equivalence_on_sparse_data": DEALT,
}


@pytest.mark.filterwarnings(UNSETTLED)
@parametrize_with_checks(
    [kind() for kind in ESTIMATORS], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learn(estimator, check):
    check(estimator)


class TestRandomness:
    @pytest.mark.filterwarnings(UNSETTLED)
    @every_estimator
    @pytest.mark.parametrize("classes", [2, 4])
    @pytest.mark.parametrize("settings", [{}, {"batch_size": 3}, {"constraint": ("ball", 2.0)}])
    def test_threads_make_no_difference(self, kind, classes, settings):
        X, y = data(kind, n=3_000, classes=classes)
        fits = [kind(random_state=3, k=8, n_jobs=jobs, **settings).fit(X, y) for jobs in (1, 2, -1, None)]
        assert all(equal(fits[0], fit) for fit in fits[1:])
        assert all(np.array_equal(fits[0].candidates_, fit.candidates_) for fit in fits[1:])

    @every_estimator
    def test_same_seed_same_model_other_seed_other_model(self, kind):
        X, y = data(kind)
        one, again, other = (kind(random_state=seed).fit(X, y) for seed in (5, 5, 6))
        assert equal(one, again)
        assert not equal(one, other)
        model = kind(random_state=5).fit(X, y)
        assert equal(model.fit(X, y), one)

    @every_estimator
    def test_random_state_objects(self, kind):
        X, y = data(kind)
        one, again = (kind(random_state=np.random.RandomState(4)).fit(X, y) for _ in range(2))
        assert equal(one, again)

    @every_estimator
    def test_global_state_is_left_alone(self, kind):
        X, y = data(kind)
        before = np.random.get_state()  # noqa: NPY002
        one, other = kind().fit(X, y), kind().fit(X, y)
        after = np.random.get_state()  # noqa: NPY002
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert not equal(one, other)

    @every_estimator
    def test_seed_in_the_report_repeats_the_fit(self, kind):
        X, y = data(kind)
        model = kind().fit(X, y)
        again = kind(random_state=model.report_.seed).fit(X, y)
        assert np.array_equal(again.coef_, model.coef_)
        assert np.array_equal(again.candidates_, model.candidates_)


class TestInputs:
    @every_estimator
    def test_pickle_and_clone(self, kind):
        X, y = data(kind)
        model = kind(random_state=0, delta=0.1, constraint=("ball", 3.0)).fit(X, y)
        copy = pickle.loads(pickle.dumps(model))
        assert equal(copy, model)
        assert np.array_equal(copy.predict(X), model.predict(X))
        assert str(copy.report_) == str(model.report_)
        fresh = clone(model)
        assert not hasattr(fresh, "coef_")
        assert equal(fresh.fit(X, y), model)
        assert fresh.get_params() == model.get_params()

    @every_estimator
    def test_model_does_not_keep_the_data(self, kind):
        X, y = data(kind, n=20_000)
        assert len(pickle.dumps(kind(random_state=0, max_iter=1).fit(X, y))) < 100_000

    @every_estimator
    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
    def test_data_frames(self, kind, frame):
        X, y = data(kind)
        names = ["age", "bmi", "dose", "sex"]
        table = frame(dict(zip(names, X.T, strict=True)))
        model = kind(random_state=0).fit(table, y)
        assert model.feature_names_in_.tolist() == names
        assert model.n_features_in_ == 4
        assert equal(model, kind(random_state=0).fit(X, y))
        assert model.predict(table).shape == (400,)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(table[names[::-1]])
        targets = pd.Series(y) if frame is pd.DataFrame else pl.Series(y)
        assert equal(model, kind(random_state=0).fit(table, targets))

    @every_estimator
    @pytest.mark.parametrize(
        "change",
        [
            np.asfortranarray,
            lambda X: np.repeat(X, 2, axis=1)[:, ::2],
            lambda X: X[::-1][::-1],
            lambda X: X.tolist(),
            lambda X: X.astype(">f8"),
        ],
        ids=["F-ordered", "strided", "reversed", "list", "big-endian"],
    )
    def test_layouts(self, kind, change):
        X, y = data(kind)
        assert equal(kind(random_state=0).fit(X, y), kind(random_state=0).fit(change(X), y))

    @every_estimator
    @pytest.mark.parametrize("csr", [False, True])
    def test_read_only(self, kind, csr):
        X, y = data(kind)
        expected = kind(random_state=0).fit(sparse.csr_array(X) if csr else X, y)
        frozen = sparse.csr_array(X) if csr else X.copy()
        for part in (frozen.data, frozen.indices, frozen.indptr) if csr else (frozen,):
            part.flags.writeable = False
        weights = np.ones(400)
        for part in (y, weights):
            part.flags.writeable = False
        assert equal(expected, kind(random_state=0).fit(frozen, y))
        kind(random_state=0, batch_size=2, constraint=("ball", 1.0)).fit(frozen, y, sample_weight=weights)

    @every_estimator
    def test_integers(self, kind):
        X, y = data(kind)
        whole = (10 * X).astype(int)
        assert equal(kind(random_state=0).fit(whole, y), kind(random_state=0).fit(whole.astype(float), y))
        assert np.all(np.isfinite(kind(random_state=0).fit(whole, y.astype(int)).coef_))

    @every_estimator
    def test_single_precision_is_close_to_double(self, kind):
        X, y = data(kind)
        assert close(kind(random_state=0).fit(X, y), kind(random_state=0).fit(X.astype(np.float32), y), 1e-3)

    @every_estimator
    @pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
    def test_sparse_formats(self, kind, make):
        X, y = data(kind)
        expected = kind(random_state=0).fit(sparse.csr_array(X), y)
        model = kind(random_state=0).fit(make(X), y)
        assert equal(expected, model)
        assert np.allclose(model.predict(make(X)), model.predict(X))

    @every_estimator
    def test_sparse_long_indices_and_duplicates(self, kind):
        X, y = data(kind)
        expected = kind(random_state=0).fit(sparse.csr_array(X), y)
        long = sparse.csr_array(X)
        long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
        assert close(expected, kind(random_state=0).fit(long, y))
        rows, columns = np.indices(X.shape)
        twice = np.tile(rows.ravel(), 2), np.tile(columns.ravel(), 2)
        order = np.argsort(twice[0], kind="stable")
        doubled = sparse.csr_array(
            (np.tile(X.ravel() / 2, 2)[order], twice[1][order], np.arange(401) * 8), shape=X.shape
        )
        before = doubled.data.copy()
        assert close(expected, kind(random_state=0).fit(doubled, y))
        assert np.array_equal(before, doubled.data)

    @every_estimator
    def test_sparse_and_dense_agree(self, kind):
        X, y = data(kind)
        fits = [
            kind(random_state=0, scale_features=False).fit(make(X), y)
            for make in (np.array, sparse.csr_array)
        ]
        assert close(*fits)

    @every_estimator
    def test_metadata_routing(self, kind):
        X, y = data(kind)
        weights = np.random.default_rng(0).exponential(size=400)
        expected = kind(random_state=0).fit(X, y, sample_weight=weights)
        with sklearn.config_context(enable_metadata_routing=True):
            weighted = kind(random_state=0).set_fit_request(sample_weight=True)
            pipeline = make_pipeline(FunctionTransformer(), weighted).fit(X, y, sample_weight=weights)
            assert equal(pipeline[-1], expected)
            search = GridSearchCV(
                weighted.set_score_request(sample_weight=True), {"delta": [0.05, 0.2]}, cv=2
            ).fit(X, y, sample_weight=weights)
            plain = GridSearchCV(
                kind(random_state=0)
                .set_fit_request(sample_weight=False)
                .set_score_request(sample_weight=False),
                {"delta": [0.05, 0.2]},
                cv=2,
            ).fit(X, y)
        assert search.cv_results_["mean_test_score"][0] != plain.cv_results_["mean_test_score"][0]
        assert search.best_estimator_.score(X, y) > 0.3

    @every_estimator
    def test_html(self, kind):
        X, y = data(kind)
        model = kind(random_state=0)
        assert kind.__name__ in model._repr_html_()
        model.fit(X, y)
        assert kind.__name__ in model._repr_html_()
        table = model.report_._repr_html_()
        assert table.startswith("<table>")
        assert table.count("<tr>") == len(model.report_.rows()) == len(str(model.report_).splitlines())

    @every_estimator
    def test_verbose(self, kind, capsys):
        X, y = data(kind)
        loud = kind(random_state=0, verbose=1, max_iter=2).fit(X, y)
        assert "pass" in capsys.readouterr().out
        quiet = kind(random_state=0, max_iter=2).fit(X, y)
        assert capsys.readouterr().out == ""
        assert equal(loud, quiet)
