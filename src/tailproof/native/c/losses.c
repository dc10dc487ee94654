/* Losses of many predictions, softmax, and proximal slopes that have no formula. */
#include "losses.h"

/* ∂²ℓ/∂p² of the smooth losses that have no explicit proximal step. */
static double loss_curvature(int code, double c, double p, double y)
{
    double decay = exp(-fabs(p));
    switch (code) {
    case POISSON: return exp(p);
    case GAMMA: return y * exp(-p);
    case TWEEDIE: return (2.0 - c) * exp((2.0 - c) * p) + (c - 1.0) * tilted(c, p, y);
    default: return decay / ((1.0 + decay) * (1.0 + decay)); /* logistic */
    }
}

/* Where a proximal step from p can end: before the explicit step does, and not past the minimum. */
static void implicit_bracket(int code, double c, double p, double y, double r, double *low, double *high)
{
    double steep = loss_slope(code, c, p, y), ends = p - r * steep;
    if (code == LOG) {
        *low = at_most(p, ends);
        *high = at_least(p, ends);
        return;
    }
    double minimum = y > 0.0 ? log(y) : -INFINITY;
    if (steep <= 0.0) {
        *low = p;
        *high = at_most(ends, minimum);
        return;
    }
    /* With a the growth rate, r exp(aq) ≤ 1 at this q, so that the sum is still below p. */
    if (code != GAMMA)
        minimum = at_least(minimum, at_most(p - 1.0, -log(r) / (code == POISSON ? 1.0 : 2.0 - c)));
    *low = at_least(ends, minimum);
    *high = p;
}

/* Newton's method, with bisection where it crawls, for q + r ℓ′(q) = p; then s = (p − q)/r. */
double solve_implicit(int code, double c, double p, double y, double r)
{
    double low, high;
    implicit_bracket(code, c, p, y, r, &low, &high);
    double q = 0.5 * low + 0.5 * high, before = high - low;
    for (int round = 0; round < 200; round++) {
        double gap = q + r * loss_slope(code, c, q, y) - p;
        if (gap > 0.0)
            high = q;
        else
            low = q;
        double following = q - gap / (1.0 + r * loss_curvature(code, c, q, y));
        if (!(low <= following && following <= high && fabs(following - q) <= 0.5 * before))
            following = 0.5 * low + 0.5 * high;
        before = fabs(following - q);
        q = following;
        if (before <= 1e-15 * (1.0 + fabs(q)))
            break;
    }
    return (p - q) / r;
}

/* ℓ(p, y) of n predictions. */
EXPORT int loss_values(int code, double c, const double *RESTRICT p, const double *RESTRICT y, int64_t n,
                       double *RESTRICT values)
{
    if (code == SQUARED) { /* a loop of its own vectorises */
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            values[i] = 0.5 * (p[i] - y[i]) * (p[i] - y[i]);
        return DONE;
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = loss_value(code, c, p[i], y[i]);
    return DONE;
}

/* ∂ℓ/∂p of n predictions. */
EXPORT int loss_slopes(int code, double c, const double *RESTRICT p, const double *RESTRICT y, int64_t n,
                       double *RESTRICT slopes)
{
    if (code == SQUARED) {
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            slopes[i] = p[i] - y[i];
        return DONE;
    }
    for (int64_t i = 0; i < n; i++)
        slopes[i] = loss_slope(code, c, p[i], y[i]);
    return DONE;
}

/* The s with s = ℓ′(p − r s) of n predictions. */
EXPORT int implicit_slopes(int code, double c, const double *RESTRICT p, const double *RESTRICT y,
                           const double *RESTRICT r, int64_t n, double *RESTRICT slopes)
{
    for (int64_t i = 0; i < n; i++)
        slopes[i] = implicit_slope(code, c, p[i], y[i], r[i]);
    return DONE;
}

/* max p. */
static double largest(const double *p, int64_t n)
{
    double top = p[0];
    for (int64_t j = 1; j < n; j++)
        top = p[j] > top ? p[j] : top;
    return top;
}

/* Class number of a label, or −1 where it is none of them. */
static int64_t class_of(double label, int64_t classes)
{
    return label >= 0.0 && label < (double)classes ? (int64_t)label : -1;
}

/* exp(p)/Σ exp(p) − e_label; the largest p is subtracted first, so that nothing overflows. */
void softmax_slopes(const double *p, int64_t classes, int64_t label, double *slopes)
{
    double top = largest(p, classes), total = 0.0;
    for (int64_t j = 0; j < classes; j++) {
        slopes[j] = exp(p[j] - top);
        total += slopes[j];
    }
    for (int64_t j = 0; j < classes; j++)
        slopes[j] /= total;
    slopes[label] -= 1.0;
}

/* log Σ exp(p) − p[y] for each of n rows of p; y holds class numbers. */
EXPORT int softmax_values(const double *p, const double *y, int64_t n, int64_t classes, double *values)
{
    for (int64_t i = 0; i < n; i++, p += classes) {
        int64_t label = class_of(y[i], classes);
        if (label < 0)
            return BAD_CLASS;
        double top = largest(p, classes), total = 0.0;
        for (int64_t j = 0; j < classes; j++)
            total += exp(p[j] - top);
        values[i] = log(total) + top - p[label];
    }
    return DONE;
}

/* softmax(p) − e_y for each of n rows of p; y holds class numbers. */
EXPORT int softmax_slope_rows(const double *p, const double *y, int64_t n, int64_t classes, double *slopes)
{
    for (int64_t i = 0; i < n; i++, p += classes, slopes += classes) {
        int64_t label = class_of(y[i], classes);
        if (label < 0)
            return BAD_CLASS;
        softmax_slopes(p, classes, label, slopes);
    }
    return DONE;
}
