"""Whatever does not fit is refused by a Python error: wrong types, shapes and indices never reach C."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailproof.native import (
    batches,
    losses,
    m_estimates,
    row_gradients,
    rows,
    scaling,
    sets,
    sgd,
    sum_of_distances,
)

RNG = np.random.default_rng(0)
N, D, K, OUTPUTS = 6, 4, 3, 3
REFUSED = (TypeError, ValueError, IndexError)
SQUARED, SOFTMAX = 0, 14


def numbers(*shape):
    return RNG.uniform(0.5, 1.5, shape)


def csr(dtype=np.float64, index=np.int32):
    return {
        "data": numbers(2 * N).astype(dtype),
        "indices": np.tile([0, D - 1], N).astype(index),
        "indptr": np.arange(0, 2 * N + 1, 2).astype(index),
    }


def visit():
    return {"y": np.arange(N) % OUTPUTS + 0.0, "weights": numbers(N), "rows": np.arange(N)[::-1].copy()}


def moving(shape, outputs):
    return {
        "w": numbers(*shape),
        "b": numbers(outputs),
        "mean_w": numbers(*shape),
        "mean_b": numbers(outputs),
    }


def problem_of(X, a):
    code = SQUARED if len(a["b"]) == 1 else SOFTMAX
    objective = sgd.Objective(code, 0.0, True, 1.0)
    return sgd.Problem(X, a["y"], a["weights"], a.get("centre", np.zeros(D)), a["gain"], objective)


def pass_over(function, source, *more):
    """Call of a pass from its arrays."""

    def call(a):
        at = sgd.Iterate(a["w"], a["b"], a["mean_w"], a["mean_b"])
        function(problem_of(source(a), a), a["rows"], at, a["steps"], *more)

    return call


def dense(a):
    return a["X"]


def sparse(a):
    return a["data"], a["indices"], a["indptr"]


LIMITS = sgd.Limits(2, 0.1, 0.1, 1, 1.0, 0.0)
dense_pass = pass_over(sgd.dense_pass, dense)
COLUMNS = {"centre": numbers(D), "gain": numbers(D)}
STEPS = {"steps": np.array([0.1])}
BY_FEATURE, BY_OUTPUT = moving((D, OUTPUTS), OUTPUTS), moving((OUTPUTS, D), OUTPUTS)
TABLE = {"values": numbers(K, N), "weights": numbers(N)}
NEAR = {"starts": numbers(K), "scales": numbers(K)}
CLOUD = {"points": RNG.standard_normal((K, 2)), "mass": numbers(K), "reach": numbers(K), "near": np.arange(2)}

# What is called, with which arrays, and which of them are written to.
CALLS = {
    "dense_pass": (dense_pass, visit() | COLUMNS | STEPS | moving((D,), 1) | {"X": numbers(N, D)}),
    "dense_pass, float32": (
        dense_pass,
        visit() | COLUMNS | STEPS | moving((D,), 1) | {"X": numbers(N, D).astype(np.float32)},
    ),
    "dense_passes": (
        lambda a: sgd.dense_passes(
            problem_of(a["X"], a), [a["rows"], a["others"]],
            sgd.Iterate(a["w"], a["b"], a["mean_w"], a["mean_b"]), a["steps"],
        ),
        visit() | COLUMNS | STEPS | moving((2, D), 2)
        | {"X": numbers(N, D), "others": visit()["rows"][1:]},
    ),
    "csr_pass": (
        pass_over(sgd.csr_pass, sparse),
        csr() | visit() | {"gain": numbers(D)} | STEPS | moving((D,), 1),
    ),
    "csr_pass, long": (
        pass_over(sgd.csr_pass, sparse),
        csr(np.float32, np.int64) | visit() | {"gain": numbers(D)} | STEPS | moving((D,), 1),
    ),
    "csr_pass_many": (
        pass_over(sgd.csr_pass_many, sparse),
        csr() | visit() | {"gain": numbers(D)} | STEPS | BY_FEATURE,
    ),
    "csr_penalised_pass": (
        pass_over(sgd.csr_penalised_pass, sparse, 0.1, 0.1),
        csr() | visit() | {"gain": numbers(D)} | STEPS | BY_FEATURE,
    ),
    "general_pass": (
        pass_over(sgd.general_pass, dense, LIMITS),
        visit() | COLUMNS | STEPS | BY_OUTPUT | {"X": numbers(N, D)},
    ),
    "general_pass, momentum": (
        lambda a: pass_over(sgd.general_pass, dense, LIMITS._replace(rule=4, strength=0.9), a["memory"])(a),
        visit() | COLUMNS | STEPS | BY_OUTPUT | {"X": numbers(N, D), "memory": numbers(OUTPUTS * (D + 1))},
    ),
    "general_pass, CSR": (
        pass_over(sgd.general_pass, sparse, LIMITS),
        csr() | visit() | COLUMNS | STEPS | BY_OUTPUT,
    ),
    "whitened_rows": (
        lambda a: rows.whitened_rows(**a),
        {"X": numbers(N, D), "rows": np.arange(2), "centre": numbers(D), "whitening": numbers(D, D)},
    ),
    "copied_rows": (lambda a: rows.copied_rows(**a), {"X": numbers(N, D), "rows": np.arange(2)}),
    "rows_of_runs": (
        lambda a: rows.rows_of_runs(**a, length=3),
        {"starts": np.arange(0, 12, 3), "into": np.empty(12, dtype=np.int64)},
    ),
    "ends_and_square": (lambda a: rows.ends_and_square(**a), {"values": numbers(N)}),
    "places_outside": (lambda a: rows.places_outside(**a, low=0.0, high=1.0), {"values": numbers(N)}),
    "scores_of_rows": (
        lambda a: rows.scores_of_rows(**a, b=0.0),
        {"X": numbers(N, D), "rows": np.arange(2), "w": numbers(D)},
    ),
    "scores_of_blocks": (
        lambda a: rows.scores_of_blocks(**a),
        {"X": numbers(N, D), "rows": np.arange(N), "ends": np.array([2, 2, N])}
        | {"coef": numbers(K, D), "intercept": numbers(K), "shared": numbers(D)},
    ),
    "add_sums": (
        lambda a: rows.add_sums(**a),
        visit() | {"X": numbers(N, D), "centre": numbers(D), "into": numbers(D + 2)},
    ),
    "add_sums_of_blocks": (
        lambda a: rows.add_sums_of_blocks(**a, group=1),
        visit() | {"X": numbers(N, D), "centre": numbers(D)}
        | {"ends": np.array([1, visit()["rows"].size]), "into": numbers(2, 3, D + 2)},
    ),
    "column_extremes": (lambda a: rows.column_extremes(**a), {"X": numbers(N, D)}),
    "entry_extremes": (
        lambda a: rows.entry_extremes(a["data"], a["indices"], D),
        {name: csr()[name] for name in ("data", "indices")},
    ),
    "fill_rows": (
        lambda a: batches.fill_rows([a["column"]] * D, a["X"], a["good"], a["low"], a["high"]),
        {"column": numbers(N), "X": numbers(N, D), "good": np.ones(N, dtype=bool)}
        | {"low": numbers(D), "high": numbers(D)},
    ),
    "loss_values": (lambda a: losses.loss_values(0, 0.0, **a), {"p": numbers(N), "y": numbers(N)}),
    "loss_slopes": (lambda a: losses.loss_slopes(0, 0.0, **a), {"p": numbers(N), "y": numbers(N)}),
    "implicit_slopes": (
        lambda a: losses.implicit_slopes(10, 0.0, **a),
        {"p": numbers(N), "y": numbers(N), "r": numbers(N)},
    ),
    "softmax_values": (lambda a: losses.softmax_values(**a), {"p": numbers(N, K), "y": np.zeros(N)}),
    "softmax_slopes": (lambda a: losses.softmax_slopes(**a), {"p": numbers(N, K), "y": np.zeros(N)}),
    "project": (lambda a: sets.project(1, 1.0, 0.0, **a), {"w": numbers(D)}),
    "block_sums": (
        lambda a: m_estimates.block_sums(**a, k=2, squared=True),
        TABLE | {"centres": numbers(K)},
    ),
    "medians_of_blocks": (
        lambda a: m_estimates.medians_of_blocks(**a, k=2, squared=True),
        {"values": numbers(K, N), "centres": numbers(K)},
    ),
    "variances": (lambda a: m_estimates.variances(**a), TABLE | {"centres": numbers(K)}),
    "m_scales": (
        lambda a: m_estimates.m_scales(**a),
        TABLE | {"centres": numbers(K), "starts": numbers(K), "limits": numbers(K)},
    ),
    "m_estimates": (lambda a: m_estimates.m_estimates(**a, psi=2), TABLE | NEAR),
    "psi_sums": (
        lambda a: m_estimates.psi_sums(**a, theta=0.0, scale=1.0, psi=1),
        {"values": numbers(N), "weights": numbers(N)},
    ),
    "partials": (
        lambda a: row_gradients.partials(**a, first=1),
        {"X": numbers(N, D), "slopes": numbers(N), "into": numbers(2, N)}
        | {"centre": numbers(D), "inverse_scale": numbers(D)},
    ),
    "m_gradient": (
        lambda a: row_gradients.m_gradient(**a, first=1, by_m_scale=True, widen=2.0, psi=2),
        {"X": numbers(N, D), "slopes": numbers(N), "centre": numbers(D), "inverse_scale": numbers(D)}
        | {"weights": numbers(N), "tile": numbers(2, N), "scales": numbers(2), "offsets": numbers(2)}
        | {"gradient": numbers(2)},
    ),
    "medians_of_means": (
        lambda a: scaling.medians_of_means(**a, groups=2),
        {"sample": numbers(N, D)},
    ),
    "robust_moments": (lambda a: scaling.robust_moments(**a, groups=2), {"sample": numbers(N, D)}),
    "square_norms": (
        lambda a: scaling.square_norms(**a),
        {"sample": numbers(N, D), "centre": numbers(D), "scale": numbers(D)},
    ),
    "scale_rows": (
        lambda a: scaling.scale_rows(**a, constant=1.0),
        {"sample": numbers(N, D), "centre": numbers(D), "scale": numbers(D)},
    ),
    "scale_and_map_rows": (
        lambda a: scaling.scale_and_map_rows(**a, constant=1.0),
        {"sample": numbers(N, D), "centre": numbers(D), "scale": numbers(D), "by": numbers(D + 1, D + 1)},
    ),
    "near_moments": (
        lambda a: scaling.near_moments(**a, limit=1.0),
        {"sample": numbers(N, D), "centre": numbers(D), "scale": numbers(D), "norms": numbers(N)},
    ),
    "distances": (lambda a: sum_of_distances.distances(**a), {"points": numbers(K, D), "centre": numbers(D)}),
    "coordinates": (
        lambda a: sum_of_distances.coordinates(**a), {"points": numbers(K, D), "reference": numbers(D)},
    ),
    "minimise": (lambda a: sum_of_distances.minimise(**a, typical=1.0, tol=1e-9, max_iter=50), CLOUD),
}  # fmt: skip
EVERY = [(name, array) for name, (_, arrays) in CALLS.items() for array in arrays]
RESULTS = ("w", "b", "mean_w", "mean_b", "into", "good", "memory", "low", "high")
WRITTEN = [pair for pair in EVERY if pair[1] in RESULTS and pair[0] != "scores_of_rows"]
WRITTEN += [("m_gradient", array) for array in ("tile", "scales", "offsets", "gradient")]
INDICES = [pair for pair in EVERY if pair[1] in ("rows", "others", "indices", "near")]
# Arrays whose last dimension is a free choice.
ANY_LENGTH = {
    ("medians_of_means", "sample"),
    ("robust_moments", "sample"),
    ("project", "w"),
    ("column_extremes", "X"),
    ("copied_rows", "X"),
    ("whitened_rows", "whitening"),
    ("softmax_values", "p"),
    ("softmax_slopes", "p"),
    ("minimise", "points"),
    ("ends_and_square", "values"),
    ("places_outside", "values"),
    ("medians_of_blocks", "values"),
    *((name, array) for name, array in EVERY if array in ("rows", "others", "near", "steps")),
}


def arrays_of(name):
    return {key: array.copy() for key, array in CALLS[name][1].items()}


def refuses(name, arrays):
    with pytest.raises(REFUSED) as caught:
        CALLS[name][0](arrays)
    assert str(caught.value)


def misaligned(array):
    raw = np.empty(array.nbytes + array.itemsize, dtype=np.uint8)
    start = 1 if raw.ctypes.data % array.itemsize == 0 else 0
    found = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


DTYPES = ["i1", "i2", "u8", "f2", ">f8", ">i8", "c16", "O", "U3", "M8[s]"]
SHAPES = {
    "shorter": lambda a: np.ascontiguousarray(a[..., :-1]),
    "longer": lambda a: np.concatenate([a, a[..., :1]], axis=-1),
    "with an axis more": lambda a: a[None],
    "a single number": lambda a: a.ravel()[0:1].reshape(()),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_fits_is_accepted(name):
    CALLS[name][0](arrays_of(name))


@pytest.mark.parametrize(("name", "array"), EVERY)
def test_other_types_are_refused(name, array):
    for dtype in DTYPES:
        arrays = arrays_of(name)
        if not (array == "good" and dtype == "i1"):
            arrays[array] = np.ones(arrays[array].shape).astype("i8").astype(dtype)
        else:
            arrays[array] = np.ones(arrays[array].shape, dtype="u1")
        refuses(name, arrays)


@pytest.mark.parametrize(("name", "array"), EVERY)
def test_other_shapes_are_refused(name, array):
    for how, change in SHAPES.items():
        if (name, array) in ANY_LENGTH and how in ("shorter", "longer"):
            continue
        arrays = arrays_of(name)
        arrays[array] = change(arrays[array])
        refuses(name, arrays)


@pytest.mark.parametrize(("name", "array"), EVERY)
def test_other_layouts_are_refused(name, array):
    arrays = arrays_of(name)
    if arrays[array].size == 1:
        return
    arrays[array] = np.repeat(arrays[array], 2, axis=-1)[..., ::2]
    refuses(name, arrays)
    if arrays[array].ndim == 2:
        arrays[array] = np.asfortranarray(arrays[array])
        refuses(name, arrays)


@pytest.mark.parametrize(("name", "array"), EVERY)
def test_numbers_at_odd_addresses_are_refused(name, array):
    arrays = arrays_of(name)
    if arrays[array].itemsize > 1:
        arrays[array] = misaligned(arrays[array])
        refuses(name, arrays)


@pytest.mark.parametrize(("name", "array"), EVERY)
def test_lists_are_refused(name, array):
    arrays = arrays_of(name)
    arrays[array] = arrays[array].tolist()
    with pytest.raises((*REFUSED, AttributeError)):
        CALLS[name][0](arrays)


@pytest.mark.parametrize(("name", "array"), WRITTEN)
def test_results_are_not_written_where_that_is_forbidden(name, array):
    arrays = arrays_of(name)
    arrays[array].flags.writeable = False
    before = arrays[array].copy()
    refuses(name, arrays)
    assert np.array_equal(arrays[array], before)


@pytest.mark.parametrize("name", CALLS)
def test_input_may_be_read_only(name):
    arrays = arrays_of(name)
    free = {key for where, key in WRITTEN if where == name} | ({"X"} if name == "fill_rows" else set())
    for key, array in arrays.items():
        array.flags.writeable = key in free
    CALLS[name][0](arrays)


@pytest.mark.parametrize(("name", "array"), INDICES)
@given(where=st.integers(0, 10**6), wrong=st.sampled_from([-1, -(2**31), 2**31 - 1, N, N + 1, 10**6, 2**62]))
@settings(max_examples=30)
def test_indices_out_of_range_are_refused(name, array, where, wrong):
    arrays = arrays_of(name)
    index = arrays[array]
    if abs(wrong) < np.iinfo(index.dtype).max:
        index[where % index.size] = wrong
        refuses(name, arrays)


@pytest.mark.parametrize("name", [name for name, (_, arrays) in CALLS.items() if "indptr" in arrays])
@given(indptr=st.lists(st.integers(-3, 3 * N), min_size=N + 1, max_size=N + 1))
@settings(max_examples=60)
def test_entries_out_of_range_are_refused(name, indptr):
    arrays = arrays_of(name)
    arrays["indptr"][:] = indptr
    if all(0 <= a <= b <= 2 * N for a, b in pairwise(indptr)):
        CALLS[name][0](arrays)
    else:
        refuses(name, arrays)


@pytest.mark.parametrize("label", [-1.0, -0.5, float(OUTPUTS), 1e300, np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["csr_pass_many", "csr_penalised_pass", "general_pass", "softmax_values", "softmax_slopes"]
)
def test_labels_that_are_no_class_are_refused(name, label):
    arrays = arrays_of(name)
    arrays["y"][2] = label
    refuses(name, arrays)


@pytest.mark.parametrize("name", [name for name in CALLS if "pass" in name])
@pytest.mark.parametrize("array", ["rows", "steps"])
def test_no_rows_and_no_steps_are_refused(name, array):
    arrays = arrays_of(name)
    if (name, array) == ("dense_passes", "rows"):  # one block of several may have none, but not all
        arrays["others"] = arrays["others"][:0]
    arrays[array] = arrays[array][:0]
    refuses(name, arrays)


def test_steps_of_another_number_than_rows_are_refused():
    arrays = arrays_of("dense_passes")
    arrays["steps"] = np.ones(2)
    refuses("dense_passes", arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 7, 130])
def test_copied_rows_are_those_asked_for(d, dtype):
    X, asked = numbers(50, d).astype(dtype), RNG.integers(0, 50, 201)
    assert np.array_equal(rows.copied_rows(X, asked), X[asked].astype(np.float64))


def test_columns_outside_of_the_matrix_are_refused():
    arrays = arrays_of("partials")
    for first in (-1, D - 1, D, 2**62):
        with pytest.raises(IndexError, match="are not all among"):
            row_gradients.partials(**arrays, first=first)


def test_a_problem_finds_its_arrays_again_in_another_process():
    arrays = arrays_of("dense_pass")
    problem = problem_of(arrays["X"], arrays)
    copied = pickle.loads(pickle.dumps(problem))
    assert copied.address != problem.address
    found = []
    for one in (problem, copied):
        at = sgd.Iterate(np.zeros(D), np.zeros(1), np.empty(D), np.empty(1))
        sgd.dense_pass(one, arrays["rows"], at, arrays["steps"])
        found.append(np.concatenate(at))
    assert np.array_equal(*found)


def test_passes_refuse_rows_of_another_kind():
    arrays = arrays_of("csr_pass")
    at = sgd.Iterate(arrays["w"], arrays["b"], arrays["mean_w"], arrays["mean_b"])
    with pytest.raises(TypeError, match="rows must be float32 or float64"):
        sgd.dense_pass(problem_of(sparse(arrays), arrays), arrays["rows"], at, arrays["steps"])


@pytest.mark.parametrize("ends", [[2, 1, N], [-1, 2, N], [2, 4, N - 1], [2, 4, N + 1], [2**62, -(2**62), N]])
def test_ends_of_blocks_that_are_no_ends_are_refused(ends):
    arrays = arrays_of("scores_of_blocks") | {"ends": np.array(ends)}
    with pytest.raises(ValueError, match="ends of blocks must not decrease"):
        rows.scores_of_blocks(**arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_blocks_are_products(dtype):
    arrays = arrays_of("scores_of_blocks")
    X = arrays["X"] = arrays["X"].astype(dtype)
    arrays["rows"] = RNG.permutation(N)
    own, every = rows.scores_of_blocks(**arrays, shared_intercept=2.0)
    block = np.repeat(np.arange(K), np.diff(arrays["ends"], prepend=0))
    expected = np.sum(X[arrays["rows"]] * arrays["coef"][block], axis=1) + arrays["intercept"][block]
    np.testing.assert_allclose(own, expected, rtol=1e-14)
    np.testing.assert_allclose(every, X @ arrays["shared"] + 2.0, rtol=1e-14)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_ends_and_square_are_those_of_numpy(values):
    sample = np.array(values, dtype=float)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = sample.min(initial=np.inf), sample.max(initial=-np.inf), np.sum(sample**2)
    np.testing.assert_allclose(rows.ends_and_square(sample), expected, rtol=1e-14)


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200), st.floats(-2, 2), st.floats(-2, 2)
)
def test_places_outside_are_those_of_numpy(values, low, high):
    sample = np.array(values, dtype=float)
    expected = np.flatnonzero(~((sample >= low) & (sample <= high)))
    np.testing.assert_array_equal(rows.places_outside(sample, low, high), expected)


@given(st.integers(3, 12), st.integers(0, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_coordinates_keep_all_distances(k, more, seed):
    noise = np.random.default_rng(seed).uniform(-1.0, 1.0, (k, k + more))
    points = (noise + 2 * (k + more) * np.eye(k, k + more)) * 10.0 ** (np.arange(k) % 3)[:, None]
    found = sum_of_distances.coordinates(points, points[0])
    assert found is not None  # each point has a coordinate of its own
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=2), apart, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found[0], 0.0)


def test_coordinates_of_dependent_or_huge_points_are_none():
    points = RNG.standard_normal((4, 9))
    assert sum_of_distances.coordinates(points, points[0]) is not None
    assert sum_of_distances.coordinates(points * 1e160, points[0] * 1e160) is None
    assert sum_of_distances.coordinates(points * 1e-130, points[0] * 1e-130) is None
    points[3] = 2 * points[1] - points[0]
    assert sum_of_distances.coordinates(points, points[0]) is None


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_medians_of_blocks_are_medians_of_their_means(k, more, squared, seed):
    values = np.random.default_rng(seed).integers(-3, 4, (2, k + more)).astype(float)  # with ties
    centres = np.array([0.0, 0.5])
    sums, totals = m_estimates.block_sums(values, np.empty(0), k, centres, squared)
    expected = np.median(sums / totals, axis=1)
    np.testing.assert_allclose(
        m_estimates.medians_of_blocks(values, k, centres, squared), expected, rtol=1e-15
    )
    values[1, seed % values.shape[1]] = np.inf
    found = m_estimates.medians_of_blocks(values, k, centres, squared)
    assert found[0] == pytest.approx(expected[0], rel=1e-15)
    assert np.isnan(found[1])
