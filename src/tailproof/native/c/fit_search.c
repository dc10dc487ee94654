/* Newton's method for a few fits at a time, on rows that stay in the cache: steps by conjugate gradients, each as long as
   is best. Directions and their products with the rows are in single precision; residuals, solutions and sums of few
   numbers are not. What a fit finds does not depend on those beside it. */
#include "fit.h"
#include "order.h"
#include "packed_rows.h"

#define ABSENT 1e-13 /* of the usual curvature: that of a direction which no row has */
#define TINY 1e-300

/* What all fits share: the penalty λ(diag(inverse) − constant constant'), and how far to go. */
typedef struct {
    const double *inverse, *constant;
    double damping, floor, corrected, close, finer, rough;
    int64_t searches, cg_steps;
    bool whole; /* whether the first step is, and pulls φ itself to zero by the damping */
} search;

/* One fit on its way. */
typedef struct {
    products of;
    fit level; /* with its residuals, and the predictions of the step as their change */
    double ridge, first, enough, length;   /* the first gradient, the one that is small enough, and the last one */
    double diagonal, product, least, unit; /* of its system: diagonal, what is left and may be, scale of directions */
    double *phi, *r, *pull, *curvature, *fitted;
    double *gradient, *step, *left;
} walker;

/* The rows of one part, and the fits on them. */
typedef struct {
    packed_rows rows;
    int64_t count, *chosen; /* which, without those of zeros at the end */
    double *shares;
    walker team[TEAM];
} bench;

/* Room for one fit. */
static double *room_of(walker *one, double *numbers, int64_t most, int64_t stride)
{
    one->r = numbers, one->pull = one->r + most, one->curvature = one->pull + most;
    one->fitted = one->curvature + most, one->gradient = one->fitted + most, one->step = one->gradient + stride;
    one->left = one->step + stride;
    one->of.weights = (float *)(one->left + stride), one->of.predictions = one->of.weights + most;
    one->of.direction = one->of.predictions + most, one->of.image = one->of.direction + stride;
    return one->left + stride + most + stride;
}

static bool set_up(bench *on, int64_t n, int64_t d)
{
    int64_t stride = padded(d, LINE), most = padded(n, LINE);
    size_t numbers = (size_t)(2 * most + TEAM * (5 * most + 4 * stride)), in_rows = (size_t)((n + TOGETHER) * stride);
    double *room = calloc(numbers * sizeof(double) + in_rows * sizeof(float) + 64, 1);
    if (!room)
        return false;
    on->shares = room, on->chosen = (int64_t *)(room + most), room += 2 * most;
    for (int f = 0; f < TEAM; f++)
        room = room_of(on->team + f, room, most, stride);
    on->rows = (packed_rows){0, d, stride, (float *)room};
    on->rows.X += (64 - (uintptr_t)room % 64) % 64 / sizeof(float);
    return true;
}

/* The rows of positive share, and their shares. */
static void take_part(bench *on, const double *X, int64_t n, const double *shares)
{
    on->count = 0;
    for (int64_t i = 0; i < n; i++) {
        on->chosen[on->count] = i, on->shares[on->count] = shares[i];
        on->count += shares[i] > 0.0;
    }
    pack(&on->rows, X, on->chosen, on->count);
}

/* Residuals of all rows to those of the part, and back. */
static void gather(const bench *on, const double *all, double *part)
{
    for (int64_t i = 0; i < on->count; i++)
        part[i] = all[on->chosen[i]];
}

static void scatter(const bench *on, const double *part, double *all)
{
    for (int64_t i = 0; i < on->count; i++)
        all[on->chosen[i]] = part[i];
}

/* Weights of rows in single precision; those of zeros at the end are finite, whatever they are. */
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

static double total(const double *x, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
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

/* λx'Sy, for derivatives of the penalty along a step. */
static double penalty_between(const search *how, double ridge, const double *x, const double *y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += how->inverse[j] * x[j] * y[j];
    return ridge * (sum - dot(how->constant, x, d) * dot(how->constant, y, d));
}

/* How rows, whose sum is the image, and the penalty pull at φ. */
static void find_gradient(walker *one, const search *how, int64_t d)
{
    double along = dot(how->constant, one->phi, d), ridge = one->ridge;
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        one->gradient[j] = one->of.image[j] - ridge * (how->inverse[j] * one->phi[j] - along * how->constant[j]);
    one->length = sqrt(dot(one->gradient, one->gradient, d));
}

/* Σ left²/diagonal, what is left in the norm of the preconditioner. */
static double norm_left(const walker *one, const search *how, int64_t d)
{
    double sum = 0.0, diagonal = one->diagonal, ridge = one->ridge;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += one->left[j] * one->left[j] / (diagonal + ridge * how->inverse[j]);
    return sum;
}

/* The next direction: what is left over the unit, preconditioned, and a share of the last one. */
static void turn_to_next(walker *one, const search *how, int64_t d, double kept)
{
    double inverse_unit = 1.0 / one->unit, diagonal = one->diagonal, ridge = one->ridge;
    float *direction = one->of.direction;
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        direction[j] =
            (float)(inverse_unit * one->left[j] / (diagonal + ridge * how->inverse[j]) + kept * direction[j]);
}

/* Add what penalty and damping make of the direction to its image. */
static void penalise_image(walker *one, const search *how, int64_t d)
{
    const float *RESTRICT direction = one->of.direction;
    float *RESTRICT image = one->of.image;
    double along = 0.0, ridge = one->ridge;
    SUM(along)
    for (int64_t j = 0; j < d; j++)
        along += how->constant[j] * direction[j];
    along *= ridge;
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        image[j] += (float)((ridge * how->inverse[j] + how->damping) * direction[j] - along * how->constant[j]);
}

/* The system (X'CX + λS + damping) step = left, of which a share may stay: its start. Whether there is any to do. */
static bool start_system(walker *one, const search *how, int64_t d, double tolerance)
{
    int exponent;
    int64_t n = one->level.n;
    one->diagonal = how->damping + total(one->curvature, n);
    to_single(one->curvature, n, one->of.weights);
    memset(one->step, 0, (size_t)d * sizeof *one->step);
    memset(one->fitted, 0, (size_t)n * sizeof *one->fitted);
    one->product = norm_left(one, how, d), one->least = tolerance * tolerance * one->product;
    frexp(sqrt(one->product), &exponent);
    one->unit = ldexp(1.0, exponent);
    memset(one->of.direction, 0, (size_t)d * sizeof *one->of.direction);
    turn_to_next(one, how, d, 0.0);
    return one->product > one->least;
}

/* One step of conjugate gradients, given image and predictions of the direction; whether to go on. */
static bool add_step(walker *one, const search *how, int64_t d)
{
    const float *direction = one->of.direction, *image = one->of.image, *predictions = one->of.predictions;
    penalise_image(one, how, d);
    double bent = dot_single(direction, image, d), before = one->product;
    if (!(bent > ABSENT * one->diagonal * dot_single(direction, direction, d)))
        return false; /* what is left is rounding, along which the rows say nothing */
    double length = before / one->unit / bent;
    INDEPENDENT
    for (int64_t j = 0; j < d; j++) {
        one->step[j] += length * direction[j];
        one->left[j] -= length * image[j];
    }
    INDEPENDENT
    for (int64_t i = 0; i < one->level.n; i++)
        one->fitted[i] += length * predictions[i];
    one->product = norm_left(one, how, d);
    if (!(one->product > one->least))
        return false;
    turn_to_next(one, how, d, one->product / larger(before, TINY));
    return true;
}

/* Images of all of some fits, and their predictions if they are curved. */
static void read_for(const bench *on, walker *const *some, int fits, bool curved)
{
    products *of[TEAM];
    for (int f = 0; f < fits; f++)
        of[f] = &some[f]->of;
    if (curved)
        read_rows_for(&on->rows, fits, of, true);
    else
        read_rows_for(&on->rows, fits, of, false);
}

/* Solve the systems of some fits, whose right-hand sides are left, together. */
static void solve(const bench *on, const search *how, walker *const *some, int fits, const double *tolerance)
{
    walker *open[TEAM];
    int moving = 0;
    int64_t d = on->rows.d;
    for (int f = 0; f < fits; f++)
        if (start_system(some[f], how, d, tolerance[f]))
            open[moving++] = some[f];
    for (int64_t done = 0; done < how->cg_steps && moving; done++) {
        read_for(on, open, moving, true);
        int left_over = 0;
        for (int f = 0; f < moving; f++)
            if (add_step(open[f], how, d))
                open[left_over++] = open[f];
        moving = left_over;
    }
}

/* Go a share of the step. */
static void go(walker *one, int64_t d, double share)
{
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        one->phi[j] += share * one->step[j];
    INDEPENDENT
    for (int64_t i = 0; i < one->level.n; i++)
        one->r[i] -= share * one->fitted[i];
}

/* The share of a step's right-hand side that may be left: one system is all of least squares. */
static double share_left(const walker *one, const search *how)
{
    double finer = how->finer * one->enough / larger(one->length, TINY);
    return at_most(isinf(one->level.tau) ? finer : larger(how->rough, finer), 1.0);
}

/* The length of a gradient that is small enough: a share of the first one, or of one whose step is about as long as φ. */
static double small_enough(const walker *one, const search *how, int64_t d)
{
    double as_long = sqrt(dot(one->phi, one->phi, d)) * total(one->curvature, one->level.n);
    return larger(how->corrected * one->first, how->close * as_long);
}

/* Gradients of the fits that move, and right-hand sides of those whose are not small enough, which stay; how many. */
static int still_moving(const bench *on, const search *how, walker **some, int fits, int64_t done)
{
    bool first = done == 0 && how->whole;
    int left_over = 0;
    for (int f = 0; f < fits; f++) {
        pulls_of(&some[f]->level, how->floor, some[f]->pull, some[f]->curvature);
        to_single(some[f]->pull, on->count, some[f]->of.weights);
    }
    read_for(on, some, fits, false);
    for (int f = 0; f < fits; f++) {
        walker *one = some[f];
        find_gradient(one, how, on->rows.d);
        one->first = done ? one->first : one->length;
        one->enough = small_enough(one, how, on->rows.d);
        if (!first && !(one->length > one->enough))
            continue;
        for (int64_t j = 0; j < on->rows.d; j++)
            one->left[j] = one->gradient[j] - (first ? how->damping * one->phi[j] : 0.0);
        some[left_over++] = one;
    }
    return left_over;
}

/* How far to go along the step: all of it, or as is best. */
static double length_of(const walker *one, const search *how, int64_t d, bool whole)
{
    if (whole)
        return 1.0;
    double first = penalty_between(how, one->ridge, one->phi, one->step, d);
    return best_length(&one->level, first, penalty_between(how, one->ridge, one->step, one->step, d));
}

/* All steps of the first fits of the team. */
static void search_team(bench *on, const search *how, int fits)
{
    walker *some[TEAM];
    double tolerance[TEAM];
    int64_t d = on->rows.d;
    for (int f = 0; f < fits; f++)
        some[f] = on->team + f;
    for (int64_t done = 0; done <= how->searches; done++) {
        fits = still_moving(on, how, some, fits, done);
        for (int f = 0; f < fits; f++)
            tolerance[f] = share_left(some[f], how);
        solve(on, how, some, fits, tolerance);
        for (int f = 0; f < fits; f++)
            go(some[f], d, length_of(some[f], how, d, done == 0 && how->whole));
    }
}

/* Change φ and residuals of every fit (first axis), on the rows that its part has shares of. */
EXPORT int search_fits(const double *X, int64_t n, int64_t d, const double *shares, int64_t parts, const int64_t *part,
                       const double *tau, const double *tukey, const double *ridge, int64_t count,
                       const double *inverse, const double *constant, double damping, double floor, double corrected,
                       double close, double finer, double rough, int64_t searches, int64_t cg_steps, int whole,
                       double *phi, double *residuals)
{
    search how = {inverse, constant, damping, floor, corrected, close, finer, rough, searches, cg_steps, whole != 0};
    bench on;
    if (!rows_exist(part, count, parts))
        return BAD_ROW;
    if (!set_up(&on, n, d))
        return NO_MEMORY;
    for (int64_t m = 0; m < count;) {
        const double *own = shares + part[m] * n;
        int64_t start = m;
        if (m == 0 || part[m] != part[m - 1])
            take_part(&on, X, n, own);
        for (; m < count && part[m] == part[start] && m < start + TEAM; m++) {
            walker *one = on.team + (m - start);
            gather(&on, residuals + m * n, one->r);
            one->level = (fit){on.count, tau[m], 1.0 / (tau[m] * tau[m]), tukey[m] != 0.0, one->r, one->fitted, on.shares};
            one->ridge = ridge[m], one->phi = phi + m * d;
        }
        search_team(&on, &how, (int)(m - start));
        for (int64_t k = start; k < m; k++)
            scatter(&on, on.team[k - start].r, residuals + k * n);
    }
    free(on.shares);
    return DONE;
}

/* Weights of reweighted least squares: 1 up to τ, which is the size of a given rank, and τ/|r| beyond. */
static void reweigh(walker *one, int64_t rank)
{
    int64_t n = one->level.n;
    double most = 0.0, *away = one->fitted;
    for (int64_t i = 0; i < n; i++) {
        away[i] = larger(fabs(one->r[i]), TINY);
        most = larger(most, away[i]);
    }
    memcpy(one->pull, away, (size_t)n * sizeof *away);
    put_in_place(one->pull, n, rank);
    double tau = larger(one->pull[rank], 1e-9 * most);
    INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        one->curvature[i] = one->level.shares[i] * at_most(tau / away[i], 1.0);
        one->pull[i] = one->curvature[i] * one->r[i];
    }
}

/* One step of reweighted least squares; whether it was short beside φ. */
static bool reweighted_step(const bench *on, const search *how, walker *one, int64_t rank, double tolerance, double close)
{
    int64_t d = on->rows.d;
    reweigh(one, rank);
    to_single(one->pull, on->count, one->of.weights);
    read_for(on, &one, 1, false);
    find_gradient(one, how, d);
    memcpy(one->left, one->gradient, (size_t)d * sizeof *one->left);
    solve(on, how, &one, 1, &tolerance);
    go(one, d, 1.0);
    return dot(one->step, one->step, d) <= close * close * dot(one->phi, one->phi, d);
}

/* Huber's regression whose τ moves along with the residuals, of rows of equal shares: changes φ and residuals. */
EXPORT int search_start(const double *X, int64_t n, int64_t d, int64_t rank, int64_t rounds, double ridge,
                        const double *inverse, const double *constant, double damping, double tolerance,
                        int64_t cg_steps, double close, double *phi, double *residuals)
{
    search how = {inverse, constant, damping, 0.0, 0.0, 0.0, 0.0, 0.0, rounds, cg_steps, false};
    bench on;
    walker *one = on.team;
    if (rank < 0 || rank >= n)
        return BAD_ROW;
    if (!set_up(&on, n, d))
        return NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        on.chosen[i] = i, on.shares[i] = 1.0 / (double)n;
    on.count = n;
    pack(&on.rows, X, on.chosen, n);
    one->level = (fit){n, INFINITY, 0.0, false, one->r, one->fitted, on.shares}, one->ridge = ridge, one->phi = phi;
    memcpy(one->r, residuals, (size_t)n * sizeof *residuals);
    for (int64_t done = 0; done < rounds; done++)
        if (reweighted_step(&on, &how, one, rank, tolerance, close))
            break;
    memcpy(residuals, one->r, (size_t)n * sizeof *residuals);
    free(on.shares);
    return DONE;
}
