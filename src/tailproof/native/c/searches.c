/* Levels of truncation fitted to rows of many columns by Newton steps, each as long as is best: of few rows a column a
   whole step overshoots, since it changes which rows are truncated. */
#include "weighted_equations.h"

#define ROUNDS 8     /* of a search along a step */
#define CLOSE 0.05   /* of the slope at its start: what may be left of it */
#define LEAST 0.05   /* share of what is known to contain the best length, at which secants may look */

/* How to search; see searched_levels. */
typedef struct {
    double floor, corrected, rough, finer, tolerance;
    int64_t searches, steps;
} settings;

/* A level on its way: residuals r at φ, their change by a whole step x, weighted curvatures, and the gradient. */
typedef struct {
    double tau, ridge, enough;
    bool tukey;
    double *phi, *r, *change, *curvature, *gradient, *memory;
} way;

/* ψ and its slope, each without a branch in the loops that call them. */
INLINED double psi_of(bool tukey, double tau, double inverse, double r)
{
    double u = at_least(1.0 - r * r * inverse, 0.0);
    return tukey ? r * u * u : clip(r, -tau, tau);
}

/* ψ′(r), at least the floor: u(5u − 4), u = (1 − r²/τ²)₊, for Tukey's ψ; for Huber's 1 up to τ. */
INLINED double slope_of(bool tukey, double tau, double inverse, double r, double floor)
{
    double u = at_least(1.0 - r * r * inverse, 0.0);
    return tukey ? at_least(u * (5.0 * u - 4.0), floor) : fabs(r) <= tau ? 1.0 : floor;
}

/* Σ xⱼ(λSy)ⱼ, S = diag(inverse) − constant constant'. */
static double penalty(const table *all, double ridge, const double *x, const double *y)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < all->d; j++)
        sum += x[j] * all->inverse[j] * y[j];
    return ridge * (sum - product_of(all->constant, x, all->d) * product_of(all->constant, y, all->d));
}

/* Weighted ψ of every row, in the place of its change, and curvatures. */
INLINED void pulls(int64_t n, const double *RESTRICT weights, double floor, bool tukey, const way *own)
{
    const double *RESTRICT r = own->r;
    double *RESTRICT pull = own->change, *RESTRICT curvature = own->curvature;
    double tau = own->tau, inverse = 1.0 / (tau * tau);
    INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        pull[i] = weights[i] * psi_of(tukey, tau, inverse, r[i]);
        curvature[i] = weights[i] * slope_of(tukey, tau, inverse, r[i], floor);
    }
}

/* image += Σ wᵢxᵢ over four rows. */
static void add_rows(const double *RESTRICT x, int64_t d, const double *w, double *RESTRICT image)
{
    const double *RESTRICT y = x + d, *RESTRICT z = y + d, *RESTRICT u = z + d;
    double a = w[0], b = w[1], c = w[2], e = w[3];
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        image[j] = image[j] + a * x[j] + b * y[j] + c * z[j] + e * u[j];
}

/* X' times the pulls of some levels, in one reading of the rows. */
static void gather(const table *all, way *const *open, int64_t count)
{
    int64_t i = 0, n = all->n, d = all->d;
    for (int64_t m = 0; m < count; m++)
        memset(open[m]->gradient, 0, (size_t)d * sizeof(double));
    for (; i + 4 <= n; i += 4)
        for (int64_t m = 0; m < count; m++)
            add_rows(all->X + i * d, d, open[m]->change + i, open[m]->gradient);
    for (; i < n; i++)
        for (int64_t m = 0; m < count; m++)
            for (int64_t j = 0; j < d; j++)
                open[m]->gradient[j] += open[m]->change[i] * all->X[i * d + j];
}

/* Gradients of the mean loss and the penalty, with their signs turned, and curvatures of the rows. */
static void look_around(const table *all, const double *weights, double floor, way *const *open, int64_t count)
{
    for (int64_t m = 0; m < count; m++)
        if (open[m]->tukey)
            pulls(all->n, weights, floor, true, open[m]);
        else
            pulls(all->n, weights, floor, false, open[m]);
    gather(all, open, count);
    for (int64_t m = 0; m < count; m++) {
        const way *own = open[m];
        double along = own->ridge * product_of(all->constant, own->phi, all->d);
        for (int64_t j = 0; j < all->d; j++)
            own->gradient[j] = own->gradient[j] / all->total + along * all->constant[j] -
                               own->ridge * all->inverse[j] * own->phi[j];
    }
}

/* X times a direction of some levels, in one reading of the rows. */
static void multiply_rows(const table *all, way *const *open, double *const *directions, int64_t count)
{
    int64_t i = 0, d = all->d;
    for (; i + 4 <= all->n; i += 4)
        for (int64_t m = 0; m < count; m++)
            multiply_four(all->X + i * d, d, directions[m], open[m]->change + i);
    for (; i < all->n; i++)
        for (int64_t m = 0; m < count; m++)
            open[m]->change[i] = product_of(all->X + i * d, directions[m], d);
}

/* Σ wcψ(r − length c), c being the change of a row. */
INLINED double pull_along(int64_t n, const double *RESTRICT weights, const way *own, bool tukey, double length)
{
    const double *RESTRICT r = own->r, *RESTRICT change = own->change;
    double sum = 0.0, tau = own->tau, inverse = 1.0 / (tau * tau);
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += weights[i] * change[i] * psi_of(tukey, tau, inverse, r[i] - length * change[i]);
    return sum;
}

/* Derivative of the penalised mean loss at a share of the step. */
static double slope_at(const table *all, const double *weights, const way *own, double length, double first,
                       double second)
{
    double pull = own->tukey ? pull_along(all->n, weights, own, true, length)
                             : pull_along(all->n, weights, own, false, length);
    return first + length * second - pull / all->total;
}

/* The share of a step, at most all of it, at which the loss falls no further: by secants and halving. */
static double best_length(const table *all, const double *weights, const way *own, const double *x)
{
    double first = penalty(all, own->ridge, own->phi, x), second = penalty(all, own->ridge, x, x);
    double low = 0.0, high = 1.0, length = 1.0;
    double falling = slope_at(all, weights, own, low, first, second);
    double rising = slope_at(all, weights, own, high, first, second), enough = CLOSE * fabs(falling);
    if (!(falling < 0.0 && rising > enough))
        return length;
    for (int number = 0; number < ROUNDS; number++) {
        double share = number % 3 < 2 ? clip(falling / (falling - rising), LEAST, 1.0 - LEAST) : 0.5;
        length = low + share * (high - low);
        double found = slope_at(all, weights, own, length, first, second);
        if (fabs(found) <= enough)
            break;
        if (found < 0.0)
            low = length, falling = found;
        else
            high = length, rising = found;
    }
    return length;
}

/* The equations of a step, and to which share they are to be solved. The first one draws φ itself towards zero, so that
   directions which the rows do not have vanish. */
static level equations(const table *all, const way *own, const settings *how, double length, bool first)
{
    if (first)
        for (int64_t j = 0; j < all->d; j++)
            own->gradient[j] -= all->damping * own->phi[j];
    double left = larger(how->rough, how->finer * own->enough / larger(length, 1e-300));
    return start(all, own->curvature, own->ridge, own->gradient, clip(left, how->tolerance, 1.0), own->memory);
}

/* The levels that go on, and the equations of their steps; how many. */
static int64_t those_that_go_on(const table *all, const settings *how, int64_t done, int64_t count, way **open,
                                level *levels)
{
    int64_t left = 0;
    for (int64_t m = 0; m < count; m++) {
        way *own = open[m];
        double length = sqrt(product_of(own->gradient, own->gradient, all->d));
        own->enough = done ? own->enough : how->corrected * length;
        if (done && length <= own->enough)
            continue;
        levels[left] = equations(all, own, how, length, done == 0);
        open[left++] = own;
    }
    return left;
}

/* All levels at once: those that go on take a step, until none does. */
static void search(const table *all, const double *weights, const settings *how, way **open, int64_t count,
                   level *levels, level **moving, double **directions)
{
    for (int64_t done = 0; done <= how->searches && count; done++) {
        look_around(all, weights, how->floor, open, count);
        count = those_that_go_on(all, how, done, count, open, levels);
        solve(all, levels, count, how->steps, moving);
        for (int64_t m = 0; m < count; m++)
            directions[m] = levels[m].x;
        multiply_rows(all, open, directions, count);
        for (int64_t m = 0; m < count; m++) {
            double *x = levels[m].x, length = done ? best_length(all, weights, open[m], x) : 1.0;
            for (int64_t j = 0; j < all->d; j++)
                open[m]->phi[j] += length * x[j];
            for (int64_t i = 0; i < all->n; i++)
                open[m]->r[i] -= length * open[m]->change[i];
        }
    }
}

/* φ of every level (first axis), from one of other rows: a Newton step, and up to `searches` further ones, each as long
   as is best, of levels whose gradient is not within the share `corrected` of the first. Conjugate gradients leave the
   share `rough` of a gradient, or `finer` of what is small enough, and no less than `tolerance`, in up to so many
   `steps`. */
EXPORT int searched_levels(const double *X, const double *y, const double *weights, int64_t n, int64_t d,
                           const double *tau, const double *tukey, const double *ridge, int64_t count,
                           const double *inverse, const double *constant, double total, double damping, double floor,
                           double corrected, double rough, double finer, double tolerance, int64_t searches,
                           int64_t steps, double *phi)
{
    table all = {X, inverse, constant, n, d, total, damping};
    settings how = {floor, corrected, rough, finer, tolerance, searches, steps};
    size_t each = (size_t)(3 * n + 5 * d);
    double *memory = malloc((size_t)count * each * sizeof *memory);
    level *levels = malloc((size_t)count * sizeof *levels), **moving = malloc((size_t)count * sizeof *moving);
    way *ways = malloc((size_t)count * sizeof *ways), **open = calloc((size_t)count, sizeof *open);
    double **directions = calloc((size_t)count, sizeof *directions);
    bool enough = memory && levels && moving && ways && open && directions;
    for (int64_t m = 0; enough && m < count; m++) {
        double *own = memory + (size_t)m * each;
        ways[m] = (way){tau[m],  ridge[m],    0.0,         tukey[m] != 0.0, phi + m * d, own, own + n, own + 2 * n,
                        own + 3 * n, own + 3 * n + d};
        open[m] = ways + m, directions[m] = phi + m * d;
    }
    if (enough) {
        multiply_rows(&all, open, directions, count);
        for (int64_t m = 0; m < count; m++)
            for (int64_t i = 0; i < n; i++)
                ways[m].r[i] = y[i] - ways[m].change[i];
        search(&all, weights, &how, open, count, levels, moving, directions);
    }
    free(directions);
    free(memory);
    free(levels);
    free(moving);
    free(ways);
    free(open);
    return enough ? DONE : NO_MEMORY;
}
