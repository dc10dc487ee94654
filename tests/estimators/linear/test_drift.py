"""Streams that change: the notice, forgetting, and going on from an earlier fit."""

import pickle
import warnings

import numpy as np
import pytest

import tailproof as tp
from linear_models import DC, REGRESSORS, close, data, equal, every_estimator
from tailproof import DCSGDRegressor, RVSGDRegressor
from tailproof.estimators.linear import fit as linear_fit
from tailproof.estimators.linear import validating
from tailproof.estimators.linear.drift import WINDOW, ErrorMonitor

FLIP = 12_000


def turning(kind=DCSGDRegressor, n=2 * FLIP, d=4, flip=FLIP):
    """Rows whose coefficients change their sign."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, d))
    sign = np.where(np.arange(n) < flip, 1.0, -1.0)
    y = sign * X.sum(axis=1) + random.standard_t(3, n)
    return X, y if kind in REGRESSORS else (y > 0).astype(int)


def fed(model, X, y, size, start=0):
    first = {} if type(model) in REGRESSORS or start else {"classes": [0, 1]}
    for begin in range(start, len(y), size):
        rows = slice(begin, begin + size)
        model.partial_fit(X[rows], y[rows], **first)
        first = {}
    return model


class TestMonitor:
    def losses(self, n, scale=1.0, seed=0):
        return scale * np.random.default_rng(seed).pareto(0.8, n)

    def test_says_nothing_where_nothing_changes(self):
        for seed in range(20):
            assert ErrorMonitor().first_rise(self.losses(50 * WINDOW, seed=seed)) is None

    @pytest.mark.parametrize("cut", [1, 700, WINDOW, 3_300])
    def test_cuts_make_no_difference(self, cut):
        every = np.concatenate([self.losses(5 * WINDOW), self.losses(2 * WINDOW, 10.0, seed=1)])
        monitor, rows = ErrorMonitor(), []
        for start in range(0, every.size, cut):
            drift = monitor.first_rise(every[start : start + cut])
            rows += [] if drift is None else [start + drift.row]
        assert len(rows) == 1
        # The window of the rise may have begun in an earlier call.
        assert 5 * WINDOW <= rows[0] < 6 * WINDOW

    @pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e12])
    def test_scale_makes_no_difference(self, scale):
        every = np.concatenate([self.losses(5 * WINDOW), self.losses(WINDOW, 10.0, seed=1)])
        drift, scaled = (ErrorMonitor().first_rise(losses) for losses in (every, scale * every))
        assert scaled.row == drift.row
        assert scaled.share == drift.share

    def test_a_fall_is_no_drift(self):
        monitor = ErrorMonitor()
        assert monitor.first_rise(np.concatenate([self.losses(WINDOW, 9.0), self.losses(WINDOW)])) is None

    def test_ties_are_no_drift(self):
        assert ErrorMonitor().first_rise(np.zeros(10 * WINDOW)) is None

    def test_losses_that_are_not_finite_are_large_ones(self):
        monitor = ErrorMonitor()
        assert monitor.first_rise(self.losses(2 * WINDOW)) is None
        assert monitor.first_rise(np.where(np.arange(WINDOW) % 2, np.nan, np.inf)).row == 0
        assert monitor.first_rise(np.full(WINDOW, np.inf)) is None

    def test_is_quiet_after_a_rise_until_the_next_one(self):
        monitor = ErrorMonitor()
        scales = [1, 1, 8, 8, 8, 64, 64]
        rises = [
            monitor.first_rise(self.losses(WINDOW, scale, seed)) is not None
            for seed, scale in enumerate(scales)
        ]
        assert rises == [False, False, True, False, False, True, False]


class TestForgetting:
    @every_estimator
    def test_auto_recovers_and_says_so(self, kind):
        X, y = turning(kind)
        model = kind(random_state=0, forget="auto")
        with pytest.warns(tp.DriftWarning, match="is forgotten") as caught:
            fed(model, X, y, 1_000)
        assert len(caught) == 1
        row = int(str(caught[0].message).split("row ")[1].split(" ")[0].replace(",", ""))
        assert FLIP <= row <= FLIP + 4 * WINDOW
        assert model.report_.drift in str(caught[0].message)
        assert model.score(X[FLIP:], y[FLIP:]) > kind(random_state=0).fit(X[FLIP:], y[FLIP:]).score(
            X[FLIP:], y[FLIP:]
        ) - (0.02 if kind in DC else 0.05)

    @every_estimator
    def test_without_forgetting_there_is_a_notice(self, kind):
        X, y = turning(kind, n=FLIP + 4 * WINDOW)
        model = kind(random_state=0)
        with pytest.warns(tp.DriftWarning, match="set forget='auto'"):
            fed(model, X, y, 1_000)
        assert np.all(np.ravel(model.coef_) > -0.5)
        assert "far above" in " ".join(model.report_.verdict())

    def test_with_a_half_life_the_notice_does_not_ask_for_one(self):
        X, y = turning(tp.DCSGDRegressor, n=FLIP + 4 * WINDOW)
        words = "far above .*: the model follows by half every 2,000 rows; forget='auto' would begin anew"
        with pytest.warns(tp.DriftWarning, match=words):
            fed(tp.DCSGDRegressor(random_state=0, forget=2_000), X, y, 1_000)

    @every_estimator
    def test_without_drift_auto_forgets_nothing(self, kind):
        X, y = data(kind, n=4_000)
        models = [fed(kind(k=5, random_state=0, forget=forget), X, y, 300) for forget in (None, "auto")]
        assert equal(*models)
        assert models[1].report_.drift is None

    @pytest.mark.filterwarnings("ignore::tailproof.DriftWarning")
    def test_a_half_life_is_one(self):
        """A mean of the path from 1 to −1 is at zero after as many rows as the half-life says."""
        random = np.random.default_rng(0)
        X = random.standard_normal((24_000, 1))
        y = np.where(np.arange(24_000) < 20_000, 1.0, -1.0) * X[:, 0]
        for half_life in (2_000, 4_000.0):
            model = fed(DCSGDRegressor(k=5, random_state=0, forget=half_life), X[:20_000], y[:20_000], 500)
            end = 20_000 + int(half_life)
            fed(model, X[:end], y[:end], 500, start=20_000)
            assert abs(model.coef_[0]) < 0.15

    @pytest.mark.filterwarnings("ignore::tailproof.DriftWarning")
    @pytest.mark.parametrize("kind", [DCSGDRegressor, RVSGDRegressor])
    def test_a_half_life_holds_inside_of_a_long_batch(self, kind):
        X, y = turning(kind)
        long = kind(k=5, random_state=0, forget=1_000).partial_fit(X, y)
        short = fed(kind(k=5, random_state=0, forget=1_000), X, y, 250)
        assert np.allclose(long.coef_, -1, atol=0.3)
        assert np.allclose(short.coef_, long.coef_, atol=0.3)

    @pytest.mark.parametrize("schedule", [("theorem1", 0.5), ("theorem2", 5.0, 0.5)])
    def test_falling_steps_begin_anew(self, schedule):
        X, y = turning()
        model = DCSGDRegressor(k=5, random_state=0, forget="auto", step_size=schedule)
        with pytest.warns(tp.DriftWarning):
            fed(model, X, y, 1_000)
        assert model.t_ < len(y) // 5
        assert np.allclose(model.coef_, -1, atol=0.2)

    def test_rows_held_out_before_are_gone(self):
        X, y = turning()
        model = RVSGDRegressor(random_state=0, forget="auto")
        with pytest.warns(tp.DriftWarning):
            fed(model, X, y, 1_000)
        residuals = model._stream.held_out.y + model._stream.held_out.X.sum(axis=1)
        assert np.mean(np.abs(residuals) < 5) > 0.95

    @pytest.mark.parametrize("forget", [0, -1.0, "never"])
    def test_other_values_are_refused(self, forget):
        X, y = data(n=50)
        with pytest.raises(ValueError, match="forget"):
            DCSGDRegressor(forget=forget).partial_fit(X, y)

    @pytest.mark.parametrize("kind", [DCSGDRegressor, RVSGDRegressor])
    def test_a_saved_stream_notices_the_same(self, kind, tmp_path):
        X, y = turning(kind)
        model = fed(kind(random_state=0, forget="auto"), X[: FLIP + 300], y[: FLIP + 300], 900)
        tp.save(model, tmp_path / "m")
        others = [model, tp.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))]
        for one in others:
            with pytest.warns(tp.DriftWarning):
                fed(one, X, y, 900, start=FLIP + 300)
        assert equal(others[0], others[1])
        assert equal(others[0], others[2])
        assert others[1].report_.drift == model.report_.drift
        tp.save(model, tmp_path / "after")
        after = tp.load(tmp_path / "after")
        assert equal(*(fed(one, X[-500:], y[-500:], 250, start=1) for one in (model, after)))


class TestGoingOn:
    @every_estimator
    def test_a_few_rows_after_a_fit_change_little(self, kind):
        X, y = data(kind, n=5_000)
        model = kind(random_state=0).fit(X, y)
        before, updates = np.copy(model.coef_), model.t_
        model.partial_fit(X[:30], y[:30])
        assert model.t_ > updates
        assert np.linalg.norm(model.coef_ - before) < 0.05 * np.linalg.norm(before)

    @pytest.mark.parametrize("kind", DC)
    def test_many_rows_after_a_fit_count(self, kind):
        X, y = data(kind, n=6_000)
        model = fed(kind(random_state=0).fit(X[:300], y[:300]), X, y, 500, start=300)
        assert model.score(X, y) > kind(random_state=0).fit(X, y).score(X, y) - 0.02


class TestLateCombination:
    @every_estimator
    def test_candidates_are_combined_once_they_are_asked_for(self, kind, monkeypatch):
        X, y = data(kind, n=700)
        model = fed(kind(k=3, random_state=0), X[:500], y[:500], 500)
        combined = []
        for module, name in ((linear_fit, "merge"), (validating, "select")):
            whole = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *a, _whole=whole, **b: combined.append(1) or _whole(*a, **b)
            )
        for row in range(500, 700):
            model.partial_fit(X[row : row + 1], y[row : row + 1])
        assert not combined
        assert model.coef_.size == 4
        assert model.report_.block_sizes.sum() <= 700
        assert np.isfinite(model.predict(X[:3])).all()
        assert len(combined) == 1
        assert not hasattr(model, "held_out_errors_")

    def test_one_row_at_a_time_is_like_many(self):
        X, y = data(n=1_200)
        settings = {"k": 3, "random_state": 0, "average": False}
        models = [
            fed(DCSGDRegressor(**settings).partial_fit(X[:900], y[:900]), X, y, n, 900) for n in (1, 300)
        ]
        assert close(*models)

    def test_rows_as_an_adapter_of_streams_gives_them(self):
        """As river's ``compat.convert_sklearn_to_river`` calls it: lists of one row."""
        X, y = data(n=300)
        lists, arrays = (DCSGDRegressor(k=3, random_state=0) for _ in range(2))
        with pytest.raises(Exception, match="not fitted"):
            lists.predict(X=[X[0].tolist()])
        for row in range(300):
            lists.partial_fit(X=[X[row].tolist()], y=[float(y[row])])
            arrays.partial_fit(X[row : row + 1], y[row : row + 1])
        assert equal(lists, arrays)

    def test_names_are_still_checked(self):
        pandas = pytest.importorskip("pandas")
        X, y = data(n=200)
        frame = pandas.DataFrame(X, columns=list("abcd"))
        model = DCSGDRegressor(k=3, random_state=0).partial_fit(frame, y)
        with pytest.warns(UserWarning, match="feature names"):
            model.partial_fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.partial_fit(frame, y)
