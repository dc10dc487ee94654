/* Slopes φ and κ by reweighted steps, where noise over its size is truncated at a quantile, and sizes from what these
   leave. */
#include "exp_log.h"
#include "reweighted.h"

#define LEAST_AHEAD (-0.5) /* of the last change of sizes, which the next one goes on by */
#define MOST_AHEAD 2.0
#define LARGEST_LOG 700.0 /* of a size, whose exponential is a normal number */

/* Steps from a place, as many as are `left`, given the columns of rows, and u where they lead; none are left where
   they have settled. Every so many have one matrix. Where some are left, the system of the next one may be singular,
   which is for the caller to solve, or τ is NaN. */
EXPORT int size_steps(const double *Q, int64_t n, int64_t rank, const double *y, const double *v, const double *s,
                      double share, double close, int64_t every, double *place, double *system, double *tau,
                      int64_t *left, double *u)
{
    workbench on = {0};
    sized rows = {0};
    bool room = make_bench(&on, system, rank + 1) && make_room(&rows, n, rank + 1);
    if (room) {
        take_rows(&rows, Q, y, v, s);
        go_on(&rows, &on, share, close, every, place, tau, left, u);
    }
    free(rows.columns);
    free(on.factors);
    return room ? DONE : NO_MEMORY;
}

/* Logarithms of sizes: those given, or with u log s + log(|u| + c), c a share of the median |u|; false where that does
   not exist. */
static bool take_sizes(const double *RESTRICT log_s, const double *RESTRICT u, int64_t n, double offset,
                       double *RESTRICT sizes)
{
    int64_t strange = 0;
    SUM(strange)
    for (int64_t i = 0; i < n; i++) {
        sizes[i] = u ? fabs(u[i]) : log_s[i];
        strange += !(fabs(sizes[i]) < INFINITY);
    }
    if (!u || strange)
        return !strange;
    double middle = quantile(sizes, n, 0.5), c = offset * middle;
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        sizes[i] = log_s[i] + log_of(fabs(u[i]) + c);
    return middle > 0.0;
}

/* Add a column times a number. */
static void add_times(double factor, const double *RESTRICT column, int64_t n, double *RESTRICT into)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        into[i] += factor * column[i];
}

/* Σ x. */
static double sum_of_all(const double *RESTRICT x, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* What sizes are by least squares, given columns f and the inverse of Σ vff'. */
static void fit_sizes(const double *f, int64_t n, int64_t m, const double *inverse, const double *v,
                      const double *sizes, double *RESTRICT sums, double *RESTRICT fitted)
{
    for (int64_t i = 0; i < n; i++)
        fitted[i] = v[i] * sizes[i];
    for (int64_t j = 0; j < m; j++)
        sums[j] = dot(f + j * n, fitted, n);
    memset(fitted, 0, (size_t)n * sizeof *fitted);
    for (int64_t j = 0; j < m; j++)
        add_times(dot(inverse + j * m, sums, m), f + j * n, n, fitted);
}

/* What sizes are smoothed by: columns of features f, the inverse of Σ vff', shares, what rows know of their own size,
   the share of the median |u| that is added to |u|, and the quantiles beyond which sizes are not trusted. */
typedef struct {
    const double *f;
    int64_t n, m;
    const double *inverse, *v, *own;
    double offset, low, high;
} smoothing;

/* Logarithms of sizes, as features tell them but for their `own` share, within two quantiles; NaN where there are none.
   There is room for 3n + 2m numbers to work with. */
static void smooth_by(const smoothing *by, const double *log_s, const double *u, double *work, double *smooth)
{
    int64_t n = by->n;
    double *sizes = work, *fitted = sizes + n, *ordered = fitted + n, low = 0.0, high = 0.0;
    bool known = take_sizes(log_s, u, n, by->offset, sizes);
    if (known) {
        fit_sizes(by->f, n, by->m, by->inverse, by->v, sizes, ordered + n, fitted);
        memcpy(ordered, fitted, (size_t)n * sizeof *ordered);
        low = quantile(ordered, n, by->low), high = quantile(ordered, n, by->high);
    }
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        smooth[i] = known ? clip(fitted[i], low, high) - by->own[i] * (sizes[i] - fitted[i]) : NAN;
}

/* The same in room of its own. */
EXPORT int smooth_sizes(const double *f, int64_t n, int64_t m, const double *inverse, const double *v,
                        const double *own, const double *log_s, const double *u, double offset, double low, double high,
                        double *smooth)
{
    smoothing by = {f, n, m, inverse, v, own, offset, low, high};
    double *work = malloc((size_t)(3 * n + 2 * m) * sizeof *work);
    if (!work)
        return NO_MEMORY;
    smooth_by(&by, log_s, u, work, smooth);
    free(work);
    return DONE;
}

/* Turn smoothed sizes into their change from what they were, but for a constant, and return the largest. */
static double take_change(const double *RESTRICT log_s, int64_t n, double *RESTRICT change)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++) {
        change[i] -= log_s[i];
        sum += change[i];
    }
    for (int64_t i = 0; i < n; i++)
        change[i] -= sum / (double)n;
    return isfinite(sum) ? largest(change, n, 1) : NAN;
}

/* How far to go on by the last step, given the changes that led to it and to the next one (Anderson). */
static double share_ahead(const double *RESTRICT before, const double *RESTRICT change, int64_t n)
{
    double product = 0.0, square = 0.0;
    SUM(product, square)
    for (int64_t i = 0; i < n; i++) {
        double less = before[i] - change[i];
        product += change[i] * less;
        square += less * less;
    }
    return clip(product / larger(square, TINY), LEAST_AHEAD, MOST_AHEAD);
}

/* Move logarithms of sizes by a change, and on by a share of the step before; the change and the step are kept. */
static void go_ahead(double *RESTRICT log_s, const double *RESTRICT change, int64_t n, double share,
                     double *RESTRICT before, double *RESTRICT step)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        step[i] = change[i] + share * (step[i] - (before[i] - change[i]));
        before[i] = change[i];
        log_s[i] += step[i];
    }
}

/* exp of numbers; false where one is beyond the range of numbers. */
static bool take_exp(const double *RESTRICT log_s, int64_t n, double *RESTRICT s)
{
    int64_t beyond = 0;
    SUM(beyond)
    for (int64_t i = 0; i < n; i++) {
        s[i] = exp_of(log_s[i]);
        beyond += !(fabs(log_s[i]) <= LARGEST_LOG);
    }
    return beyond == 0;
}

/* How rounds have ended. */
enum outcome { SETTLED = 0, NOWHERE, DOUBTFUL };

/* Steps of φ and κ and smoothed sizes in turn, `first` steps and then `later` ones, until the largest change of sizes is
   below `settled`. Logarithms of sizes and the place are moved; s and u are those that the last steps have led to. The
   outcome is DOUBTFUL where a system may be singular, or sizes are beyond the range of numbers. */
EXPORT int size_rounds(const double *Q, int64_t n, int64_t rank, const double *y, const double *f, int64_t m,
                       const double *inverse, const double *v, const double *own, double offset, double low,
                       double high, int64_t rounds, int64_t first, int64_t later, int64_t every, double share,
                       double close, double settled, double *place, double *log_s, double *s, double *u, double *tau,
                       int64_t *outcome)
{
    int64_t count = rank + 1, left = 0;
    smoothing by = {f, n, m, inverse, v, own, offset, low, high};
    double *before = calloc((size_t)(6 * n + 2 * m + count * (count + 1)), sizeof *before);
    double *step = before + n, *change = step + n, *work = change + n, *system = work + 3 * n + 2 * m;
    workbench on = {0};
    sized rows = {0};
    bool room = before && make_bench(&on, system, count) && make_room(&rows, n, count), moving = room;
    *outcome = NOWHERE;
    for (int64_t done = 0; moving && done < rounds; done++) {
        if (!take_exp(log_s, n, s)) {
            *outcome = DOUBTFUL;
            break;
        }
        left = done ? later : first;
        take_rows(&rows, Q, y, v, s);
        go_on(&rows, &on, share, close, every, place, tau, &left, u);
        smooth_by(&by, log_s, u, work, change);
        double most = take_change(log_s, n, change);
        moving = !left && most >= settled && most < INFINITY;
        if (left || most < settled)
            *outcome = !isfinite(*tau) ? NOWHERE : left ? DOUBTFUL : SETTLED;
        if (moving)
            go_ahead(log_s, change, n, done ? share_ahead(before, change, n) : 0.0, before, step);
    }
    free(rows.columns);
    free(on.factors);
    free(before);
    return room ? DONE : NO_MEMORY;
}

/* exp γ'f of every row, with γ'f within two quantiles, (y − q'φ) over that, and Σ vq over it; `known` is false where numbers
   do not hold these. */
EXPORT int noise_over_sizes(const double *Q, int64_t n, int64_t rank, const double *y, const double *f, int64_t m,
                            const double *v, const double *phi, const double *gamma, double low, double high,
                            double *RESTRICT s, double *RESTRICT noise, double *mean_row, int64_t *known)
{
    double *shares = calloc((size_t)n, sizeof *shares);
    int64_t strange = 0;
    if (!shares)
        return NO_MEMORY;
    memset(s, 0, (size_t)n * sizeof *s);
    for (int64_t j = 0; j < m; j++)
        add_times(gamma[j], f + j * n, n, s);
    *known = isfinite(sum_of_all(s, n));
    if (*known) {
        memcpy(shares, s, (size_t)n * sizeof *shares);
        low = quantile(shares, n, low), high = quantile(shares, n, high);
        for (int64_t i = 0; i < n; i++)
            s[i] = clip(s[i], low, high);
        memcpy(shares, s, (size_t)n * sizeof *shares);
        *known = take_exp(shares, n, s);
    }
    memcpy(noise, y, (size_t)n * sizeof *noise);
    for (int64_t j = 0; j < rank; j++)
        add_times(-phi[j], Q + j * n, n, noise);
    SUM(strange)
    for (int64_t i = 0; i < n; i++) {
        noise[i] /= s[i];
        shares[i] = v[i] / s[i];
        strange += !(fabs(noise[i]) < INFINITY);
    }
    for (int64_t j = 0; j < rank; j++)
        mean_row[j] = dot(shares, Q + j * n, n);
    *known = *known && !strange;
    free(shares);
    return DONE;
}
