"""Rounds of DC-SGD: against a slow transcription, wherever the rows are; what the reports say."""

import numpy as np
import pytest

import tailproof as tp
from pieces_data import assert_same, chunks_of, interrupted, rows, write_parquet
from tailproof.data import fit as fit_in_pieces

PAPER = {
    "scale_features": False,
    "shuffle": False,
    "average": False,
    "update": "explicit",
    "fit_intercept": False,
    "trim": False,
    "max_iter": 1,
}


def problem(n=120, d=4, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d))
    return X, X @ np.arange(1.0, d + 1) + random.standard_t(2.5, n)


def slow_rounds(X, y, counts, step_at, start):
    """Algorithm 1 again and again, from the geometric median of the round before, one row after the other."""
    for k in counts:
        candidates = []
        for part in np.array_split(np.arange(len(y)), k):
            w = np.array(start)
            for t, i in enumerate(part):
                w = w - step_at(t, k) * (X[i] @ w - y[i]) * X[i]
            candidates.append(w)
        start = tp.merge.geometric_median(np.array(candidates), tol=1e-14).point
    return np.array(candidates), start


@pytest.mark.parametrize("rounds", [3, (4, 4, 4), (6, 3, 2)])
@pytest.mark.parametrize("steps", [0.03, ("theorem2", 5.0, 1.0)])
def test_rounds_are_those_of_a_slow_transcription(rounds, steps):
    """Steps begin again in every round."""
    X, y = problem()
    start, k = np.full(4, 0.5), {} if isinstance(rounds, tuple) else {"k": 4}
    model = tp.DCSGDRegressor(rounds=rounds, step_size=steps, init=start, **k, **PAPER).fit(X, y)
    schedule = tp.steps.get_steps(steps)
    step_at = lambda t, k: schedule.sizes(np.array([t]), 4, len(y), k)[0]  # noqa: E731
    counts = rounds if isinstance(rounds, tuple) else [4] * rounds
    candidates, point = slow_rounds(X, y, counts, step_at, start)
    np.testing.assert_allclose(model.candidates_[:, :4], candidates, rtol=1e-10)
    np.testing.assert_allclose(model.coef_, point, rtol=1e-8)
    assert model.n_iter_ == len(counts)
    assert [len(report.distances) for report in model.report_.rounds] == list(counts)


@pytest.mark.parametrize("data", ["array", "chunks"])
def test_one_round_is_a_fit_without_rounds(data):
    X, y = rows(1_500)
    given = X, y
    settings = {"random_state": 0, "max_iter": 2}
    one, two = tp.DCSGDRegressor(rounds=(5,), **settings), tp.DCSGDRegressor(k=5, **settings)
    if data == "array":
        one.fit(*given), two.fit(*given)
    else:
        tp.fit(one, chunks_of(X, y, 3)), tp.fit(two, chunks_of(X, y, 3))
    assert_same(one, two)
    assert two.report_.rounds is None


@pytest.mark.parametrize("rounds", [3, (6, 3)])
def test_the_same_from_chunks_files_and_after_an_interruption(rounds, tmp_path, monkeypatch):
    X, y = rows(1_800)
    chunks = chunks_of(X, y, 3)
    k = {} if isinstance(rounds, tuple) else {"k": 4}

    def make():
        return tp.DCSGDRegressor(rounds=rounds, random_state=1, max_iter=1, **k)

    model = tp.fit(make(), chunks)
    paths = write_parquet(tmp_path, chunks)
    assert_same(model, tp.fit(make(), paths))
    mark = tmp_path / "mark"
    with monkeypatch.context() as patch:
        patch.setattr(fit_in_pieces.RowsInPieces, "voters", interrupted)  # after the first round
        with pytest.raises(KeyboardInterrupt):
            tp.fit(make(), paths, checkpoint=mark, checkpoint_seconds=0.0)
    assert_same(model, tp.fit(make(), paths, checkpoint=mark, checkpoint_seconds=0.0))
    assert [report.number for report in model.report_.rounds] == list(range(1, len(model.report_.rounds) + 1))


def test_the_result_does_not_depend_on_n_jobs():
    X, y = rows(1_200)
    one, two = (tp.DCSGDRegressor(rounds=2, random_state=0, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    assert_same(one, two)


@pytest.mark.parametrize("make", [tp.DCSGDRegressor, tp.DCSGDClassifier])
def test_a_bad_block_stands_out_in_every_round_and_its_reports_are_saved(make, tmp_path):
    random = np.random.default_rng(0)
    X = random.standard_normal((900, 3))
    y = X @ [1.0, 2.0, 3.0] + random.standard_normal(900)
    y[:100] *= -3.0  # the first of nine blocks
    y = y > 0 if make is tp.DCSGDClassifier else y
    model = make(k=9, rounds=3, shuffle=False, random_state=0, drop_glitches=False).fit(X, y)
    assert all(0 in report.stand_out for report in model.report_.rounds)
    assert "round 3: majority radius" in str(model.report_)
    assert model.report_.theorem.startswith("none")
    tp.save(model, tmp_path / "model")
    loaded = tp.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.report_.rounds[2].distances, model.report_.rounds[2].distances)
    assert loaded.rounds == 3


def test_rounds_pay_where_blocks_are_smaller_than_the_number_of_parameters():
    ratios = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        X = random.standard_normal((800, 60))
        y = X.sum(axis=1) + np.exp(1.75 * random.standard_normal(800))
        errors = [
            np.sum((tp.DCSGDRegressor(k=20, rounds=rounds, random_state=0).fit(X, y).coef_ - 1) ** 2)
            for rounds in (1, 8)
        ]
        ratios.append(errors[1] / errors[0])
    assert np.median(ratios) < 0.5


def test_automatic_blocks_are_as_many_as_the_theorem_asks_for():
    X, y = problem(400, 40)
    model = tp.DCSGDRegressor(rounds=2, random_state=0).fit(X, y)
    assert model.report_.k == 20  # of 20 rows: without rounds there would be one
    assert "rounds make up for" in model.report_.why_k
    assert tp.DCSGDRegressor(random_state=0).fit(X, y).report_.k == 1


def test_no_intervals_are_made_up():
    X, y = problem(600)
    model = tp.DCSGDRegressor(rounds=2, k=10, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="shared a start"):
        model.predict_mean_interval(X)
    with pytest.raises(ValueError, match="without rounds"):
        model.predict_interval(X)
    assert "shared a start" in str(model.summary())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "'rounds' parameter"),
        ({"rounds": (3, 0)}, "the blocks of each round, from 1 to n_samples=120"),
        ({"rounds": ()}, "the blocks of each round"),
        ({"rounds": (500,)}, "the blocks of each round"),
        ({"rounds": (4, 2), "k": 4}, "leave k out"),
    ],
)
def test_mistakes_are_one_sentence(change, message):
    with pytest.raises(ValueError, match=message):
        tp.DCSGDRegressor(**change).fit(*problem())


def test_a_stream_has_no_rounds():
    with pytest.raises(ValueError, match="partial_fit sees a row once"):
        tp.DCSGDRegressor(rounds=2).partial_fit(*problem())
