"""The compiled pass over a network against PyTorch and against a slow transcription."""

from itertools import pairwise

import numpy as np
import pytest

from tailproof.native.networks import network_pass, parameters_of


def made(sizes, n, dtype, seed=0):
    random = np.random.default_rng(seed)
    X = random.random((n, sizes[0])).astype(dtype)
    w = random.standard_normal(parameters_of(sizes)).astype(dtype) * 0.3
    return X, random.integers(0, sizes[-1], n), random.permutation(n), w


def slow_pass(X, y, rows, sizes, w, step, batch_size):
    """Iterates of mini-batch SGD, by the chain rule one row and one layer at a time."""
    layers, at = [], 0
    for inputs, outputs in pairwise(sizes):
        weights = w[at : at + inputs * outputs].reshape(outputs, inputs).copy()
        layers.append([weights, w[at + inputs * outputs : at + (inputs + 1) * outputs].copy()])
        at += (inputs + 1) * outputs
    iterates = []
    for begin in range(0, rows.size, batch_size):
        batch = rows[begin : begin + batch_size]
        moves = [[np.zeros_like(part) for part in layer] for layer in layers]
        for i in batch:
            values = [X[i]]
            for weights, biases in layers[:-1]:
                values.append(np.maximum(weights @ values[-1] + biases, 0))
            p = np.exp(layers[-1][0] @ values[-1] + layers[-1][1])
            error = p / p.sum() - (np.arange(sizes[-1]) == y[i])
            for layer in reversed(range(len(layers))):
                moves[layer][0] += np.outer(error, values[layer]) / batch.size
                moves[layer][1] += error / batch.size
                error = (layers[layer][0].T @ error) * (values[layer] > 0)
        for layer, move in zip(layers, moves, strict=True):
            layer[:] = [part - step * direction for part, direction in zip(layer, move, strict=True)]
        iterates.append(np.concatenate([part.ravel() for layer in layers for part in layer]))
    return np.array(iterates)


@pytest.mark.parametrize("batch_size", [1, 3, 8, 100])
@pytest.mark.parametrize("sizes", [[1, 2], [7, 3], [13, 10, 4], [6, 5, 4, 3], [700, 3]])
def test_one_epoch_is_that_of_a_slow_transcription(sizes, batch_size):
    X, y, rows, w = made(sizes, 45, np.float64)
    iterates = slow_pass(X, y, rows, sizes, w, 0.2, batch_size)
    mean = np.full_like(w, 7.0)
    assert network_pass(X, y, rows, sizes, w, 0.2, batch_size=batch_size, mean=mean) == len(iterates)
    np.testing.assert_allclose(w, iterates[-1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mean, iterates.mean(axis=0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("hidden", [[], [10], [10, 10, 10]])
def test_one_epoch_is_that_of_torch(hidden):
    torch = pytest.importorskip("torch")
    sizes = [20, *hidden, 5]
    X, y, rows, w = made(sizes, 203, np.float64)
    layers = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs, dtype=torch.float64), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    torch.nn.utils.vector_to_parameters(torch.as_tensor(w), network.parameters())
    w = w.copy()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3)
    for batch in torch.as_tensor(rows).split(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            network(torch.as_tensor(X)[batch]), torch.as_tensor(y)[batch]
        )
        loss.backward()
        optimizer.step()
    network_pass(X, y, rows, sizes, w, 0.3, batch_size=8)
    expected = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()
    assert np.abs(w - expected).max() < 1e-6


def test_two_passes_are_one_average_and_single_precision_is_near_double():
    sizes = [9, 10, 3]
    X, y, rows, w = made(sizes, 64, np.float64)
    narrow, mean = w.astype(np.float32), np.zeros_like(w)
    iterates = slow_pass(X, y, np.concatenate([rows, rows[::-1]]), sizes, w, 0.1, 8)
    done = network_pass(X, y, rows, sizes, w, 0.1, batch_size=8, mean=mean)
    network_pass(X, y, rows[::-1].copy(), sizes, w, 0.1, batch_size=8, mean=mean, updates=done)
    np.testing.assert_allclose(mean, iterates.mean(axis=0), rtol=1e-10, atol=1e-12)
    network_pass(X.astype(np.float32), y, rows, sizes, narrow, 0.1, batch_size=8)
    np.testing.assert_allclose(narrow, iterates[7], rtol=1e-3, atol=1e-5)


def test_infinity_and_nan_are_not_hidden():
    X, y, rows, w = made([4, 6, 3], 16, np.float64)
    X[rows[0], 2] = np.nan
    network_pass(X, y, rows, [4, 6, 3], w, 0.1)
    assert np.isnan(w).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.array([99])}, "numbers of rows"),
        ({"y": np.full(5, 3)}, "class numbers"),
        ({"sizes": [3, 2]}, "must begin with the 4 columns"),
        ({"sizes": [4]}, "at least one layer"),
        ({"w": np.zeros(3)}, r"shape \(10,\)"),
        ({"w": np.zeros(10, dtype=np.float32)}, "must be float64"),
        ({"batch_size": 0}, "at least 1"),
        ({"rows": np.empty(0, dtype=np.int64)}, "at least 1"),
    ],
)
def test_mistakes_are_named(change, message):
    X = np.zeros((5, 4))
    given = {
        "y": np.zeros(5, dtype=np.int64),
        "rows": np.arange(5),
        "sizes": [4, 2],
        "w": np.zeros(10),
        "step": 0.1,
    }
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        network_pass(X, **(given | change))
