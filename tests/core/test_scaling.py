import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from scattered import scattered
from tailproof.core.scaling import (
    expected_square_norm,
    far_columns,
    robust_columns,
    sample_rows,
    unscaled,
    with_whitening,
)
from tailproof.native.rows import column_extremes, entry_extremes
from tailproof.native.scaling import (
    medians_of_means,
    near_moments,
    robust_moments,
    scale_and_map_rows,
    scale_rows,
    square_norms,
)


@given(seed=st.integers(0, 10**6), power=st.integers(-12, 12), shift=st.floats(-100, 100))
def test_moves_and_scales_with_the_columns(seed, power, shift):
    sample = np.random.default_rng(seed).standard_t(3, (300, 4))
    one, two = robust_columns(sample), robust_columns(10.0**power * (sample + shift))
    assert np.allclose(two.scale / 10.0**power, one.scale, rtol=1e-8)
    assert np.allclose(two.centre / 10.0**power, one.centre + shift, rtol=1e-8, atol=1e-8)
    assert expected_square_norm(sample, one) == pytest.approx(
        expected_square_norm(10.0**power * (sample + shift), two), rel=1e-6
    )


def test_normal_columns():
    sample = np.random.default_rng(0).standard_normal((20_000, 3)) * [1e-6, 1.0, 1e6] + [0.0, 5.0, 1e6]
    found = robust_columns(sample)
    assert np.allclose(found.scale, [1e-6, 1.0, 1e6], rtol=0.03)
    assert np.allclose((found.centre - [0.0, 5.0, 1e6]) / found.scale, 0, atol=0.05)
    assert np.allclose(found.inverse_square_scale * found.scale**2, 1)
    assert expected_square_norm(sample, found) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("rows", [[0], [0, 1], [7, 9_000], [0, 3_000, 5_000, 7_000, 9_999]])
def test_glitches_do_no_harm(scale, rows):
    """One row in 10⁴ at 1e12, or a few of them, wherever they are."""
    sample = scale * np.random.default_rng(0).standard_normal((10_000, 2))
    plain = robust_columns(sample)
    norm = expected_square_norm(sample, plain)
    sample[rows] = 1e12
    found = robust_columns(sample)
    assert np.allclose(found.scale / plain.scale, 1, rtol=0.2)
    assert np.allclose((found.centre - plain.centre) / plain.scale, 0, atol=0.2)
    assert expected_square_norm(sample, found) == pytest.approx(norm, rel=0.5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, -1e9, 1e300])
def test_constant_columns_have_scale_one(value):
    found = robust_columns(np.full((500, 2), value))
    assert found.scale.tolist() == [1.0, 1.0]
    assert np.allclose(found.centre, value)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_columns_whose_squares_vanish_have_a_scale(make):
    sample = np.random.default_rng(0).standard_normal((500, 2)) * [1.0, 1e-200]
    scale = robust_columns(make(sample)).scale
    assert 0.5 < scale[1] / 1e-200 < 2


def test_rare_entries_have_a_scale():
    sample = np.zeros((1_000, 1))
    sample[:10] = 5.0
    scale = robust_columns(sample).scale[0]
    assert 0.1 < scale < 5


def test_options():
    sample = np.random.default_rng(0).standard_normal((500, 3)) * [1.0, 10.0, 100.0] + 7
    assert robust_columns(sample, centred=False).centre.tolist() == [0, 0, 0]
    common = robust_columns(sample, common=True).scale
    assert common.tolist() == [np.median(robust_columns(sample).scale)] * 3
    assert unscaled(3).inverse_square_scale.tolist() == [1, 1, 1]


@pytest.mark.parametrize("make", [np.array, sparse.csr_array])
@pytest.mark.parametrize("shape", [(1, 1), (50, 3), (5_000, 300), (30, 20_000)])
def test_sample_is_small_and_spread(make, shape):
    X = np.zeros(shape)
    X[:, 0] = np.arange(shape[0])
    found = sample_rows(make(X), [np.arange(len(X))])
    assert (found.nnz if sparse.issparse(found) else found.size) <= max(100_000, 100 * shape[1])
    found = found.toarray() if sparse.issparse(found) else found
    assert found.dtype == np.float64
    assert found.shape[1] == shape[1]
    assert found[0, 0] == 0
    assert found[-1, 0] == shape[0] - 1
    assert len(np.unique(found[:, 0])) == len(found)


def test_sparse_columns_are_seen_however_many():
    rng = np.random.default_rng(0)
    X = scattered((20_000, 1_000), 0.01, rng)
    X = (X @ sparse.diags_array(np.repeat([1e-8, 1e12], 500))).tocsr()
    scale = robust_columns(sample_rows(X, [rng.permutation(20_000)])).scale
    np.testing.assert_allclose(scale[:500], 0.1e-8, rtol=0.5)
    np.testing.assert_allclose(scale[500:], 0.1e12, rtol=0.5)


def test_wild_entries_of_sparse_columns_do_not_move_a_scale():
    X = np.random.default_rng(0).standard_normal((2_000, 3))
    plain = robust_columns(sparse.csr_array(X)).scale
    X[[3, 700], [0, 1]] = [1e12, 1e200]
    np.testing.assert_allclose(robust_columns(sparse.csr_array(X)).scale, plain, rtol=0.1)
    assert robust_columns(sparse.csr_array(np.full((8, 1), 1e200))).scale[0] == pytest.approx(1e200)
    assert robust_columns(sparse.csr_array((8, 2))).scale.tolist() == [1, 1]


def collinear(n=2_000, seed=0):
    z = np.random.default_rng(seed).standard_normal((n, 3))
    return np.column_stack([z[:, 0], 1e3 * (z[:, 0] + 0.01 * z[:, 1]), 5 + z[:, 2]])


def covariance_after(sample, columns):
    z = (sample - columns.centre) / columns.scale @ columns.whitening
    return z.T @ z / len(z)


def test_turned_columns_are_uncorrelated_and_of_size_one():
    sample = collinear()
    columns = with_whitening(sample, robust_columns(sample))
    assert np.allclose(covariance_after(sample, columns), np.eye(3), atol=0.1)
    assert expected_square_norm(sample, columns) == pytest.approx(3, rel=0.1)


def test_columns_that_hardly_correlate_stay():
    sample = np.random.default_rng(0).standard_normal((500, 4))
    columns = robust_columns(sample)
    assert with_whitening(sample, columns) is columns


@pytest.mark.parametrize("size", [1e3, 1e12])
def test_bad_rows_do_not_turn_the_others(size):
    clean, sample = collinear(), collinear()
    sample[::3] = size * np.random.default_rng(1).standard_normal((len(sample[::3]), 3))
    columns = with_whitening(sample, robust_columns(clean))
    assert np.allclose(covariance_after(clean, columns), np.eye(3), atol=0.15)


def test_a_direction_without_variation_keeps_its_size():
    sample = collinear()
    sample[:, 2] = 7.0
    columns = with_whitening(sample, robust_columns(sample))
    assert np.abs(columns.whitening[2]).max() == pytest.approx(1.0)


def test_a_rare_indicator_is_not_turned():
    rng = np.random.default_rng(0)
    sample = np.column_stack([collinear(), rng.random(2_000) < 0.01])
    columns = with_whitening(sample, robust_columns(sample))
    assert columns.whitening[3].tolist() == [0, 0, 0, 1]
    assert columns.whitening[:, 3].tolist() == [0, 0, 0, 1]
    alone = np.column_stack([rng.standard_normal((2_000, 3)), sample[:, 3]])
    assert with_whitening(alone, robust_columns(alone)).whitening is None


@pytest.mark.parametrize("columns", [3, 5_000])
def test_scales_of_sparse_samples(columns):
    X = scattered((200, columns), 0.05, np.random.default_rng(0))
    X.data[5] = 1e9
    found = robust_columns(X)
    quiet = np.setdiff1d(np.arange(columns), X.indices[5])
    size = np.sqrt((X.toarray()[:, quiet] ** 2).mean(axis=0))
    used = size > 0
    assert np.all(found.scale[quiet][~used] == 1)
    ratio = found.scale[quiet][used] / size[used]
    assert 0.7 < ratio.min() <= ratio.max() < 1.2
    assert expected_square_norm(X, found) == pytest.approx(
        expected_square_norm(X.toarray(), found), rel=1e-12
    )
    assert np.all(robust_columns(X, common=True).scale == np.median(found.scale))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_turn_from_few_rows_or_bad_ones(bad):
    few = collinear(14)
    columns = robust_columns(few)
    assert with_whitening(few, columns) is columns
    broken = collinear()
    broken[5:, 1] = bad
    assert with_whitening(broken, columns) is columns


def test_the_order_in_memory_changes_nothing():
    sample = np.random.default_rng(0).standard_t(3, (300, 3))
    columns, turned = robust_columns(sample), robust_columns(np.asfortranarray(sample))
    assert np.array_equal(columns.scale, turned.scale)
    assert expected_square_norm(sample, columns) == expected_square_norm(np.asfortranarray(sample), columns)


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 8, 13, 50, 64, 65])
def test_medians_of_means_are_those_of_numpy(groups):
    rng = np.random.default_rng(groups)
    sample = rng.standard_normal((3 * groups + groups // 2, 70))
    means = sample[: 3 * groups].reshape(groups, 3, 70).mean(axis=1)
    assert medians_of_means(sample, groups) == pytest.approx(np.median(means, axis=0), rel=1e-12)


@pytest.mark.parametrize("d", [1, 32, 70])
@pytest.mark.parametrize("centred", [True, False])
def test_robust_moments_are_medians_about_medians(d, centred):
    sample = np.random.default_rng(d).standard_normal((21, d)) + 1.0
    middle, variance = robust_moments(sample, 5, centred)
    assert middle.tolist() == medians_of_means(sample, 5).tolist()
    squares = (sample[:20] - (middle if centred else 0.0)) ** 2
    assert variance == pytest.approx(np.median(squares.reshape(5, 4, d).mean(axis=1), axis=0), rel=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 30, 31])
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_moments_of_single_rows_are_medians_about_medians(rows, bad):
    rng = np.random.default_rng(rows)
    sample = np.concatenate([rng.standard_normal((rows, 37)), rng.integers(-2, 3, (rows, 5))], axis=1)
    sample[0, 0] += bad
    middle, variance = robust_moments(sample, rows)
    with np.errstate(invalid="ignore"):
        squares = np.sort((sample - middle) ** 2, axis=0)  # NaN last
    expected = (squares[(rows - 1) // 2] + squares[rows // 2]) / 2
    np.testing.assert_allclose(variance, expected, rtol=1e-12)


@pytest.mark.parametrize("near", [0, 1, 4, 7])
def test_moments_of_near_rows_are_those_of_numpy(near):
    rng = np.random.default_rng(near)
    sample, centre, scale = rng.standard_normal((12, 5)), rng.standard_normal(5), rng.uniform(1.0, 2.0, 5)
    norms = np.where(np.arange(12) < near, 1.0, np.resize([np.nan, np.inf, 2.0], 12))
    z = (sample[:near] - centre) / scale
    count, mean, product = near_moments(sample, centre, scale, norms, 1.5)
    assert count == near
    assert mean == pytest.approx(z.mean(axis=0) if near else np.zeros(5))
    assert product == pytest.approx(z.T @ z / max(near, 1))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("n", "d"), [(25, 1), (1_003, 3), (60, 1_200)])
def test_a_far_value_is_found_wherever_it_is(n, d, order):
    X = np.asarray(np.random.default_rng(0).standard_normal((n, d)), order=order)
    assert far_columns(X, 100.0).size == 0
    for row in (0, n // 2, n - 1):
        bad = X.copy(order="K")
        bad[row, d - 1] = -1e6
        assert far_columns(bad, 100.0).tolist() == [d - 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_of_columns_are_those_of_numpy(dtype):
    X = np.random.default_rng(0).standard_normal((37, 5)).astype(dtype)
    X[3, 1] = np.inf
    for step in (1, 4):
        low, high = column_extremes(X, step)
        assert low.tolist() == X[::step].min(axis=0).tolist()
        assert high.tolist() == X[::step].max(axis=0).tolist()
    entries = sparse.csr_array(X * (X > 0.5))
    low, high = entry_extremes(entries.data, entries.indices, 6)
    assert low.tolist() == [0.0] * 6
    assert high.tolist() == [*entries.max(axis=0).toarray().ravel().tolist(), 0.0]


@pytest.mark.parametrize("make", [sparse.csc_array, sparse.coo_array, sparse.csr_array])
def test_a_far_entry_is_found_in_every_sparse_format(make):
    X = np.random.default_rng(0).poisson(0.3, (500, 4)).astype(np.int64)
    X[7, 2] = 10**6
    assert far_columns(make(X).tocsr(), 100.0).tolist() == [2]
    assert far_columns(make(X.astype(float)).tocsc(), 100.0).tolist() == [2]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_few_values_are_not_far(shape):
    assert far_columns(np.ones(shape), 100.0).size == 0


@pytest.mark.parametrize("step", [1, 3])
def test_moments_of_some_rows_are_those_of_a_copy_of_them(step):
    rng = np.random.default_rng(0)
    sample, centre, scale = rng.standard_normal((20, 3)), np.ones(3), np.full(3, 2.0)
    few = np.ascontiguousarray(sample[::step])
    norms = np.linspace(0.0, 2.0, len(few))
    count, mean, product = near_moments(sample, centre, scale, norms, 1.5, step)
    expected = near_moments(few, centre, scale, norms, 1.5)
    assert count == expected[0]
    assert np.array_equal(mean, expected[1])
    assert np.array_equal(product, expected[2])


@pytest.mark.parametrize("width", [1, 31, 33, 70])
def test_medians_of_means_put_nan_last_in_its_column_alone(width):
    sample = np.random.default_rng(0).standard_normal((11, width))
    spoilt = sample.copy()
    spoilt[:4, 0] = np.nan
    found = medians_of_means(spoilt, 11)
    assert found[0] == np.sort(spoilt[:, 0])[5]
    assert np.array_equal(found[1:], np.median(sample, axis=0)[1:])


@pytest.mark.parametrize(("smallest", "whitened"), [(0.02, True), (0.04, False)])
def test_columns_are_whitened_where_an_eigenvalue_is_small(smallest, whitened):
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((3_000, 3)))[0] * np.sqrt(3_000)
    rotation = np.linalg.qr(np.ones((3, 3)) + np.eye(3))[0]
    sample = rows * np.sqrt([smallest, 1.0, 1.0]) @ rotation
    columns = unscaled(3)
    assert (with_whitening(sample, columns).whitening is not None) == whitened


@pytest.mark.parametrize("d", [1, 2, 5])
def test_rows_scaled_mapped_and_measured_are_those_of_whole_arrays(d):
    rng = np.random.default_rng(d)
    sample, centre, scale = rng.standard_normal((50, d)), rng.standard_normal(d), rng.uniform(0.5, 2, d)
    by = rng.standard_normal((d + 1, d + 1))
    z = (sample - centre) / scale
    rows = np.column_stack([z, np.full(50, 0.5)])
    np.testing.assert_allclose(scale_rows(sample, centre, scale, 0.5), rows)
    np.testing.assert_allclose(scale_and_map_rows(sample, centre, scale, 0.5, by), rows @ by, atol=1e-12)
    np.testing.assert_allclose(square_norms(sample, centre, scale), (z**2).sum(axis=1))
