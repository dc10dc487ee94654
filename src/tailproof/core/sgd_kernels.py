"""One pass of projected SGD (equation sgd_defn) over one block of rows, compiled.

Serial, without the GIL, without random numbers or Python objects: threads run several at once and the
order of the rows comes in as an argument. All passes work on w in the units of the data and see centred
features z = x − centre; ``gain`` is the inverse square of each column's scale, so that a step of size α in
scaled coordinates is w −= α · slope · gain · z. Two short kernels serve the common case of one output, one
row a step and no constraint; ``general_pass`` serves everything.
"""

from __future__ import annotations

import numpy as np

from tailproof.core.losses import SOFTMAX, implicit_slope, slope, softmax_slopes
from tailproof.core.numerics.compiled import REORDERED, compiled
from tailproof.core.sets import NONE, project


@compiled(REORDERED)
def dense_pass(X, y, weights, rows, centre, gain, w, b, mean_w, mean_b, steps, code, c, implicit, intercept):
    """Dense rows, one output: w and b move, mean_w and mean_b become the averages of their paths.

    Two steps are taken on one reading of w: what the first does to the second row's score is its move times
    the product of the two rows, so the steps are those of one row after the other.
    """
    n, bias, total = rows.size, b[0], 0.0
    mean_w[:] = 0.0
    for t in range(0, n, 2):
        paired = 1.0 if t + 1 < n else 0.0
        i, k = rows[t], rows[min(t + 1, n - 1)]
        p, p2, q, q2, shared = _scores(X[i], X[k], centre, gain, w, bias, intercept)
        move = _move_of(steps, t, weights, i, y, p, q, code, c, implicit)
        bias -= move * intercept
        total += bias
        move2 = paired * _move_of(steps, t + 1, weights, k, y, p2 - move * shared, q2, code, c, implicit)
        bias -= move2 * intercept
        total += paired * bias
        _step_twice(X[i], X[k], centre, gain, w, mean_w, move, move2, paired)
    mean_w /= n
    mean_b[0] = total / n
    b[0] = bias


@compiled(REORDERED, inline="always")
def _scores(x, x2, centre, gain, w, bias, intercept):
    """Scores of two rows, their squared norms and their product."""
    p, p2, q, q2, shared = bias, bias, intercept, intercept, intercept
    for j in range(w.size):
        z, z2 = x[j] - centre[j], x2[j] - centre[j]
        zg = z * gain[j]
        p += z * w[j]
        p2 += z2 * w[j]
        q += z * zg
        q2 += z2 * z2 * gain[j]
        shared += z2 * zg
    return p, p2, q, q2, shared


@compiled(REORDERED, inline="always")
def _move_of(steps, t, weights, i, y, p, q, code, c, implicit):
    """Step size times the slope at row i, or at the end of a proximal step."""
    reach = steps[min(t, steps.size - 1)] * (weights[i] if weights.size else 1.0)
    return reach * (implicit_slope(code, c, p, y[i], reach * q) if implicit else slope(code, c, p, y[i]))


@compiled(REORDERED, inline="always")
def _step_twice(x, x2, centre, gain, w, mean_w, move, move2, paired):
    for j in range(w.size):
        first = w[j] - move * (x[j] - centre[j]) * gain[j]
        second = first - move2 * (x2[j] - centre[j]) * gain[j]
        mean_w[j] += first + paired * second
        w[j] = second


@compiled(REORDERED)
def whitened_rows(X, rows, centre, whitening):
    """Return (x − centre) · whitening for some dense rows."""
    found = np.zeros((rows.size, whitening.shape[1]))
    for t in range(rows.size):
        x, z = X[rows[t]], found[t]
        for i in range(centre.size):
            share = x[i] - centre[i]
            for j in range(z.size):
                z[j] += share * whitening[i, j]
    return found


@compiled(REORDERED)
def scores_of_rows(X, rows, w, b):
    """Return ⟨w, x⟩ + b for some dense rows, without a copy of them."""
    found = np.empty(rows.size)
    for t in range(rows.size):
        x, total = X[rows[t]], b
        for j in range(w.size):
            total += x[j] * w[j]
        found[t] = total
    return found


@compiled(REORDERED)
def csr_pass(
    data, indices, indptr, y, weights, rows, gain, w, b, mean_w, mean_b, steps, code, c, implicit, intercept
):
    """Sparse rows, one output, no centring: work in proportion to the entries that are not zero."""
    bias, total = b[0], 0.0
    # The mean of the path is w_T − Σ t δ_t / T: the lag collects t δ_t, and only where a row has entries.
    lag = mean_w
    lag[:] = 0.0
    for t in range(rows.size):
        i = rows[t]
        p, q = bias, intercept
        for e in range(indptr[i], indptr[i + 1]):
            j = np.uintp(indices[e])  # unsigned: no check for counting from the end
            p += data[e] * w[j]
            q += data[e] * gain[j] * data[e]  # in this order: float32 squares would overflow
        move = _move_of(steps, t, weights, i, y, p, q, code, c, implicit)
        for e in range(indptr[i], indptr[i + 1]):
            j = np.uintp(indices[e])
            change = move * data[e] * gain[j]
            w[j] -= change
            lag[j] -= t * change
        bias -= move * intercept
        total += bias
    for column in range(w.size):
        mean_w[column] = w[column] - lag[column] / rows.size
    mean_b[0] = total / rows.size
    b[0] = bias


@compiled(REORDERED)
def csr_pass_many(
    data, indices, indptr, y, weights, rows, gain, W, b, mean_W, mean_b, steps, code, c, implicit, intercept
):
    """Sparse rows, several outputs, no centring; W and mean_W come transposed, features first."""
    outputs = b.size
    scores, slopes = np.empty(outputs), np.empty(outputs)
    lag = mean_W
    lag[:] = 0.0
    mean_b[:] = 0.0
    for t in range(rows.size):
        i = rows[t]
        q = intercept
        scores[:] = b
        for e in range(indptr[i], indptr[i + 1]):
            j = np.uintp(indices[e])
            q += data[e] * gain[j] * data[e]
            for o in range(outputs):
                scores[o] += data[e] * W[j, o]
        reach = steps[min(t, steps.size - 1)] * (weights[i] if weights.size else 1.0)
        _slopes_of(scores, reach * q, y[i], code, c, implicit, slopes)
        for e in range(indptr[i], indptr[i + 1]):
            j = np.uintp(indices[e])
            for o in range(outputs):
                change = reach * slopes[o] * data[e] * gain[j]
                W[j, o] -= change
                lag[j, o] -= t * change
        for o in range(outputs):
            b[o] -= reach * slopes[o] * intercept
            mean_b[o] += b[o]
    for column in range(len(W)):
        for o in range(outputs):
            mean_W[column, o] = W[column, o] - lag[column, o] / rows.size
    mean_b /= rows.size


@compiled(REORDERED)
def csr_penalised_pass(
    data, indices, indptr, y, weights, rows, gain, W, b, mean_W, mean_b, step, code, c, implicit, intercept,
    l1, l2,
):  # fmt: skip
    """Sparse rows, penalties, steps of one size: a feature is shrunk when a row has it, for all steps since.

    W and mean_W come transposed, features first.
    """
    outputs = b.size
    scores, slopes, seen = np.empty(outputs), np.empty(outputs), np.zeros(len(W), dtype=np.int64)
    mean_W[:] = 0.0
    mean_b[:] = 0.0
    for t in range(rows.size):
        i = rows[t]
        q = intercept
        scores[:] = b
        for e in range(indptr[i], indptr[i + 1]):
            j = np.uintp(indices[e])
            q += data[e] * gain[j] * data[e]
            for o in range(outputs):
                _shrink(W, mean_W, j, o, t - seen[j], step * l1 * gain[j], step * l2 * gain[j])
                scores[o] += data[e] * W[j, o]
            seen[j] = t
        weight = weights[i] if weights.size else 1.0
        _slopes_of(scores, step * weight * q, y[i], code, c, implicit, slopes)
        for e in range(indptr[i], indptr[i + 1]):
            j = np.uintp(indices[e])
            for o in range(outputs):
                W[j, o] -= step * weight * slopes[o] * data[e] * gain[j]
        for o in range(outputs):
            b[o] -= step * weight * slopes[o] * intercept
            mean_b[o] += b[o]
    for column in range(len(W)):
        for o in range(outputs):
            cut, decay = step * l1 * gain[column], step * l2 * gain[column]
            _shrink(W, mean_W, column, o, rows.size - seen[column], cut, decay)
    mean_W /= rows.size
    mean_b /= rows.size


@compiled(REORDERED, part=True)
def _shrink(W, total, j, o, times, cut, decay):
    """Take |w| to (|w| − cut)/(1 + decay), not below 0, so many times; the values on the way go to the total.

    With g(s) = (1 − (1 + decay)^−s)/decay they are |w| − g(s)(decay |w| + cut), and their sum has a formula.
    """
    size = abs(W[j, o])
    if times == 0 or size == 0.0:
        return
    sign, rate = np.copysign(1.0, W[j, o]), np.log1p(decay)
    steps = float(times)
    if cut > 0.0:
        # How many until zero.
        last = np.log1p(decay * size / cut) / rate if rate > 0.0 else size / cut
        steps = min(steps, np.floor(last))
    reach = -np.expm1(-steps * rate) / decay if rate > 0.0 else steps
    total[j, o] += sign * (size * reach - cut * _beyond(steps, decay, reach))
    alive = steps == float(times)
    W[j, o] = sign * max(size - reach * (decay * size + cut), 0.0) if alive else 0.0


@compiled()
def _beyond(steps, decay, reach):
    """(steps − g(steps))/decay; by its series where that would lose all digits."""
    if steps * decay < 1e-5:
        return 0.5 * steps * (steps + 1.0) * (1.0 - decay * (steps + 2.0) / 3.0)
    return (steps - reach) / decay


@compiled(REORDERED)
def general_pass(
    X, data, indices, indptr, y, weights, rows, centre, gain, W, b, mean_W, mean_b, steps, code, c, implicit,
    intercept, batch, l1, l2, set_code, first, second,
):  # fmt: skip
    """Any input (X, or CSR arrays where X is empty), outputs, mini-batches, penalties and constraints."""
    outputs, d = W.shape
    z, slopes = np.zeros(d), np.empty(outputs)
    gradient, gradient_b = np.zeros_like(W), np.zeros(outputs)
    mean_W[:] = 0.0
    mean_b[:] = 0.0
    updates = (rows.size + batch - 1) // batch
    plain = batch == 1 and l1 == 0.0 and l2 == 0.0 and set_code == NONE
    for t in range(updates):
        alpha = steps[t if steps.size > 1 else 0]
        start, stop = t * batch, min((t + 1) * batch, rows.size)
        for position in range(start, stop):
            i = rows[position]
            q = _load_row(X, data, indices, indptr, i, centre, gain, z) + intercept
            weight = weights[i] if weights.size else 1.0
            _slopes(W, b, z, q * alpha * weight, y[i], code, c, implicit, slopes)
            share = weight / (stop - start)
            if plain:
                _move(W, mean_W, slopes, z, gain, alpha * share)
            else:
                _add(gradient, slopes, z, gain, share)
            for o in range(outputs):
                gradient_b[o] += share * slopes[o] * intercept
        for o in range(outputs):
            b[o] -= alpha * gradient_b[o]
            mean_b[o] += b[o]
        gradient_b[:] = 0.0
        if not plain:
            _finish_step(W, mean_W, gradient, gain, alpha, l1, l2, set_code, first, second)
    mean_W /= updates
    mean_b /= updates


@compiled(REORDERED, part=True)
def _load_row(X, data, indices, indptr, i, centre, gain, z):
    """Centred row into z; returns Σ gain z²."""
    q = 0.0
    if X.size:
        for j in range(z.size):
            z[j] = X[i, j] - centre[j]
        # A loop of its own: fused, whether it is vectorised depends on where the arrays happen to lie.
        for j in range(z.size):
            q += z[j] * z[j] * gain[j]
        return q
    z[:] = 0.0
    for e in range(indptr[i], indptr[i + 1]):
        z[indices[e]] += data[e]
        q += data[e] * gain[indices[e]] * data[e]
    return q


@compiled(REORDERED, part=True)
def _slopes(W, b, z, reach, label, code, c, implicit, slopes):
    """Slope of the loss in every output: softmax, one against the rest, or the one output."""
    outputs = len(W)
    for o in range(outputs):
        total = b[o]
        for j in range(z.size):
            total += W[o, j] * z[j]
        slopes[o] = total
    _slopes_of(slopes.copy(), reach, label, code, c, implicit, slopes)


@compiled(REORDERED, part=True)
def _slopes_of(scores, reach, label, code, c, implicit, slopes):
    if code == SOFTMAX:
        softmax_slopes(scores, int(label), slopes)
        if implicit:
            # ½ bounds the curvature of softmax: a safe linearisation of the proximal step.
            slopes /= 1.0 + 0.5 * reach
        return
    for o in range(scores.size):
        target = label if scores.size == 1 else (1.0 if o == int(label) else -1.0)
        p = scores[o]
        slopes[o] = implicit_slope(code, c, p, target, reach) if implicit else slope(code, c, p, target)


@compiled(REORDERED, part=True)
def _move(W, mean_W, slopes, z, gain, alpha):
    for o in range(len(W)):
        move = alpha * slopes[o]
        for j in range(z.size):
            W[o, j] -= move * z[j] * gain[j]
            mean_W[o, j] += W[o, j]


@compiled(REORDERED, part=True)
def _add(gradient, slopes, z, gain, share):
    for o in range(len(gradient)):
        for j in range(z.size):
            gradient[o, j] += share * slopes[o] * z[j] * gain[j]


@compiled(REORDERED, part=True)
def _finish_step(W, mean_W, gradient, gain, alpha, l1, l2, set_code, first, second):
    """Gradient step, proximal step of the penalties in the metric of the gains, projection."""
    for o in range(len(W)):
        for j in range(gain.size):
            moved = W[o, j] - alpha * gradient[o, j]
            short = max(abs(moved) - alpha * l1 * gain[j], 0.0)
            W[o, j] = np.copysign(short, moved) / (1.0 + alpha * l2 * gain[j])
    gradient[:] = 0.0
    if set_code != NONE:
        project(set_code, first, second, W.reshape(-1))
    mean_W += W
