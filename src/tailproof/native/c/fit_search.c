/* Newton's method for one fit after the other, on rows that stay in the cache: steps by conjugate gradients, each as long
   as is best. Directions and their products with the rows are in single precision; residuals, solutions and sums of few
   numbers are not. */
#include "fit.h"
#include "order.h"
#include "packed_rows.h"

#define ABSENT 1e-13 /* of the usual curvature: that of a direction which no row has */
#define TINY 1e-300

/* What all fits share: the penalty λ(diag(inverse) − constant constant'), and how far to go. */
typedef struct {
    const double *inverse, *constant;
    double damping, floor, corrected, finer, rough;
    int64_t searches, cg_steps;
    bool whole; /* whether the first step is, and pulls φ itself to zero by the damping */
} search;

/* The rows of one part, and room for one fit on them. */
typedef struct {
    packed_rows rows;
    int64_t count; /* rows without those of zeros at the end */
    double *shares, *r, *pull, *curvature, *fitted;
    float *weights, *predictions, *direction, *image;
    double *gradient, *step, *left;
} bench;

static bool set_up(bench *on, int64_t n, int64_t d)
{
    int64_t stride = padded(d, LINE), most = padded(n, LINE);
    size_t doubles = (size_t)(5 * most + 3 * stride), floats = (size_t)((n + TOGETHER) * stride + 2 * most + 2 * stride);
    double *numbers = calloc(doubles * sizeof(double) + floats * sizeof(float) + 64, 1);
    if (!numbers)
        return false;
    on->shares = numbers, on->r = on->shares + most, on->pull = on->r + most, on->curvature = on->pull + most;
    on->fitted = on->curvature + most, on->gradient = on->fitted + most, on->step = on->gradient + stride;
    on->left = on->step + stride;
    on->weights = (float *)(on->left + stride), on->predictions = on->weights + most;
    on->direction = on->predictions + most, on->image = on->direction + stride;
    on->rows = (packed_rows){0, d, stride, on->image + stride};
    on->rows.X += (64 - (uintptr_t)on->rows.X % 64) % 64 / sizeof(float);
    return true;
}

/* The rows of positive share, and their shares. */
static void take_part(bench *on, const double *X, int64_t n, const double *shares)
{
    pack(&on->rows, X, n, shares);
    on->count = 0;
    for (int64_t i = 0; i < n; i++)
        if (shares[i] > 0.0)
            on->shares[on->count++] = shares[i];
}

/* Numbers of all rows to those of the part, or back. */
static void gather(bench *on, const double *r, int64_t n, const double *shares)
{
    for (int64_t i = 0, m = 0; i < n; i++)
        if (shares[i] > 0.0)
            on->r[m++] = r[i];
}

static void scatter(const bench *on, double *r, int64_t n, const double *shares)
{
    for (int64_t i = 0, m = 0; i < n; i++)
        if (shares[i] > 0.0)
            r[i] = on->r[m++];
}

/* Weights of rows in single precision; those of zeros at the end stay zero. */
static void to_single(const double *RESTRICT from, int64_t n, float *RESTRICT to)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

static double dot(const double *RESTRICT x, const double *RESTRICT y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += x[j] * y[j];
    return sum;
}

static double dot_single(const float *RESTRICT x, const float *RESTRICT y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += (double)x[j] * y[j];
    return sum;
}

/* x'λSx', for the derivatives of the penalty along a step. */
static double penalty_between(const search *how, double ridge, const double *x, const double *other, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += how->inverse[j] * x[j] * other[j];
    return ridge * (sum - dot(how->constant, x, d) * dot(how->constant, other, d));
}

/* How rows, by `pull`, and the penalty pull at φ; returns its length. */
static double gradient_at(bench *on, const search *how, double ridge, const double *phi)
{
    int64_t d = on->rows.d;
    double along = dot(how->constant, phi, d);
    to_single(on->pull, on->count, on->weights);
    weighted_sum(&on->rows, on->weights, on->image);
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        on->gradient[j] = on->image[j] - ridge * (how->inverse[j] * phi[j] - along * how->constant[j]);
    return sqrt(dot(on->gradient, on->gradient, d));
}

/* Σ left²/diagonal, what is left in the norm of the preconditioner. */
static double norm_left(const bench *on, const search *how, double diagonal, double ridge)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < on->rows.d; j++)
        sum += on->left[j] * on->left[j] / (diagonal + ridge * how->inverse[j]);
    return sum;
}

/* The next direction: what is left over `unit`, preconditioned, and a share of the last one. */
static void turn_to_next(bench *on, const search *how, double diagonal, double ridge, double unit, double kept)
{
    double inverse_unit = 1.0 / unit;
    INDEPENDENT
    for (int64_t j = 0; j < on->rows.d; j++)
        on->direction[j] = (float)(inverse_unit * on->left[j] / (diagonal + ridge * how->inverse[j]) +
                                   kept * on->direction[j]);
}

/* Add what penalty and damping make of the direction to its image. */
static void penalise_image(bench *on, const search *how, double ridge)
{
    double along = 0.0;
    SUM(along)
    for (int64_t j = 0; j < on->rows.d; j++)
        along += how->constant[j] * on->direction[j];
    along *= ridge;
    INDEPENDENT
    for (int64_t j = 0; j < on->rows.d; j++)
        on->image[j] += (float)((ridge * how->inverse[j] + how->damping) * on->direction[j] - along * how->constant[j]);
}

/* Add one step of conjugate gradients to step and predictions; whether there was any. */
static bool add_step(bench *on, const search *how, double diagonal, double ridge, double before, double unit)
{
    int64_t d = on->rows.d;
    curved(&on->rows, on->weights, on->direction, on->predictions, on->image);
    penalise_image(on, how, ridge);
    double bent = dot_single(on->direction, on->image, d);
    if (!(bent > ABSENT * diagonal * dot_single(on->direction, on->direction, d)))
        return false; /* what is left is rounding, along which the rows say nothing */
    double length = before / unit / bent;
    INDEPENDENT
    for (int64_t j = 0; j < d; j++) {
        on->step[j] += length * on->direction[j];
        on->left[j] -= length * on->image[j];
    }
    INDEPENDENT
    for (int64_t i = 0; i < on->count; i++)
        on->fitted[i] += length * on->predictions[i];
    return true;
}

/* Solve (X'CX + λS + damping) step = left up to a share of it, and the predictions of the step. */
static void solve(bench *on, const search *how, double ridge, double tolerance)
{
    double diagonal = how->damping;
    int exponent;
    SUM(diagonal)
    for (int64_t i = 0; i < on->count; i++)
        diagonal += on->curvature[i];
    to_single(on->curvature, on->count, on->weights);
    memset(on->step, 0, (size_t)on->rows.d * sizeof *on->step);
    memset(on->fitted, 0, (size_t)on->count * sizeof *on->fitted);
    double product = norm_left(on, how, diagonal, ridge), enough = tolerance * tolerance * product, kept = 0.0;
    frexp(sqrt(product), &exponent);
    double unit = ldexp(1.0, exponent);
    memset(on->direction, 0, (size_t)on->rows.stride * sizeof *on->direction);
    for (int64_t done = 0; done < how->cg_steps && product > enough; done++) {
        turn_to_next(on, how, diagonal, ridge, unit, kept);
        double before = product;
        if (!add_step(on, how, diagonal, ridge, before, unit))
            return;
        product = norm_left(on, how, diagonal, ridge);
        kept = product / larger(before, TINY);
    }
}

/* Go a share of the step. */
static void go(bench *on, double share, double *phi)
{
    INDEPENDENT
    for (int64_t j = 0; j < on->rows.d; j++)
        phi[j] += share * on->step[j];
    INDEPENDENT
    for (int64_t i = 0; i < on->count; i++)
        on->r[i] -= share * on->fitted[i];
}

/* The share of a step's right-hand side that may be left: one system is all of least squares. */
static double share_left(const search *how, double tau, double length, double enough)
{
    double finer = how->finer * enough / larger(length, TINY);
    return at_most(isinf(tau) ? finer : larger(how->rough, finer), 1.0);
}

/* All steps of one fit, whose residuals the bench has. */
static void search_one(bench *on, const search *how, double tau, double tukey, double ridge, double goal, double *phi)
{
    int64_t d = on->rows.d;
    fit own = {on->count, tau, 1.0 / (tau * tau), tukey != 0.0, on->r, on->fitted, on->shares};
    double enough = goal;
    for (int64_t done = 0; done <= how->searches; done++) {
        pulls_of(&own, how->floor, on->pull, on->curvature);
        double length = gradient_at(on, how, ridge, phi);
        bool first = done == 0 && how->whole;
        enough = done ? enough : larger(how->corrected * length, goal);
        if (!first && !(length > enough))
            return;
        for (int64_t j = 0; j < d; j++)
            on->left[j] = on->gradient[j] - (first ? how->damping * phi[j] : 0.0);
        solve(on, how, ridge, share_left(how, tau, length, enough));
        double slope = penalty_between(how, ridge, phi, on->step, d);
        go(on, first ? 1.0 : best_length(&own, slope, penalty_between(how, ridge, on->step, on->step, d)), phi);
    }
}

/* Change φ and residuals of every fit (first axis), on the rows that its part has shares of. */
EXPORT int search_fits(const double *X, int64_t n, int64_t d, const double *shares, int64_t parts, const int64_t *part,
                       const double *tau, const double *tukey, const double *ridge, const double *goal, int64_t count,
                       const double *inverse, const double *constant, double damping, double floor, double corrected,
                       double finer, double rough, int64_t searches, int64_t cg_steps, int whole, double *phi,
                       double *residuals)
{
    search how = {inverse, constant, damping, floor, corrected, finer, rough, searches, cg_steps, whole != 0};
    bench on;
    if (!rows_exist(part, count, parts))
        return BAD_ROW;
    if (!set_up(&on, n, d))
        return NO_MEMORY;
    for (int64_t m = 0; m < count; m++) {
        const double *own = shares + part[m] * n;
        if (m == 0 || part[m] != part[m - 1])
            take_part(&on, X, n, own);
        gather(&on, residuals + m * n, n, own);
        search_one(&on, &how, tau[m], tukey[m], ridge[m], goal[m], phi + m * d);
        scatter(&on, residuals + m * n, n, own);
    }
    free(on.shares);
    return DONE;
}

/* Weights of reweighted least squares: 1 up to τ, which is the number of a given rank, and τ/|r| beyond. */
static void reweigh(bench *on, int64_t rank)
{
    double most = 0.0, *away = on->fitted;
    for (int64_t i = 0; i < on->count; i++) {
        away[i] = larger(fabs(on->r[i]), TINY);
        most = larger(most, away[i]);
    }
    memcpy(on->pull, away, (size_t)on->count * sizeof *away);
    put_in_place(on->pull, on->count, rank);
    double tau = larger(on->pull[rank], 1e-9 * most);
    for (int64_t i = 0; i < on->count; i++) {
        on->curvature[i] = on->shares[i] * at_most(tau / away[i], 1.0);
        on->pull[i] = on->curvature[i] * on->r[i];
    }
}

/* Huber's regression whose τ moves along with the residuals, of rows of equal shares: changes φ and residuals. */
EXPORT int search_start(const double *X, int64_t n, int64_t d, int64_t rank, int64_t rounds, double ridge,
                        const double *inverse, const double *constant, double damping, double tolerance,
                        int64_t cg_steps, double close, double *phi, double *residuals)
{
    search how = {inverse, constant, damping, 0.0, 0.0, 0.0, 0.0, rounds, cg_steps, false};
    bench on;
    if (rank < 0 || rank >= n)
        return BAD_ROW;
    if (!set_up(&on, n, d))
        return NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        on.shares[i] = 1.0 / (double)n;
    on.count = n;
    pack(&on.rows, X, n, on.shares);
    memcpy(on.r, residuals, (size_t)n * sizeof *residuals);
    for (int64_t done = 0; done < rounds; done++) {
        reweigh(&on, rank);
        gradient_at(&on, &how, ridge, phi);
        memcpy(on.left, on.gradient, (size_t)d * sizeof *on.left);
        solve(&on, &how, ridge, tolerance);
        go(&on, 1.0, phi);
        if (dot(on.step, on.step, d) <= close * close * dot(phi, phi, d))
            break;
    }
    memcpy(residuals, on.r, (size_t)n * sizeof *residuals);
    free(on.shares);
    return DONE;
}
