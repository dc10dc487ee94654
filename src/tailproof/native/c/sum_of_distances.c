/* Minimising Σ wⱼ‖v − uⱼ‖ over v in a few dimensions: the search of merge.geometric_median.

   The sum is convex, and smooth except at the points themselves. If the best of the points is not the minimiser,
   every place with a lower sum than it has, so also the way down from there, is free of points: Newton's method
   with a line search stays fast however close together some of the points are. */
#include "common.h"

#define AT_POINT 1e-13 /* share of the weight by which rounding may spoil the optimality condition at a point */

#define INDEPENDENT_SHARE 1e-3 /* of a squared length that must stand upright on the points before */
#define LEAST_SQUARE 1e-240    /* of lengths, whose products neither vanish */
#define LARGEST_SQUARE 1e300   /* nor overflow */

/* k points in p dimensions with their weights. */
struct cloud {
    const double *points, *mass;
    int64_t k, p;
    double total; /* weight */
};

/* Where the search is: v, its distances from the points, Σ w (v − u)/d, Σ w/d, and room for two steps. */
struct place {
    double *v, *distances, *gradient, *newton, *weiszfeld, *trial, *hessian, curvature;
};

static double product(const double *a, const double *b, int64_t p)
{
    double total = 0.0;
    for (int64_t i = 0; i < p; i++)
        total += a[i] * b[i];
    return total;
}

static double length(const double *a, int64_t p) { return sqrt(product(a, a, p)); }

static int64_t smallest(const double *values, int64_t n)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        found = values[i] < values[found] ? i : found;
    return found;
}

/* Distances from v, Σ w (v − u)/d and Σ w/d, both over the points that are not v itself. */
static void look(const struct cloud *u, const double *v, struct place *at)
{
    memset(at->gradient, 0, (size_t)u->p * sizeof *at->gradient);
    at->curvature = 0.0;
    for (int64_t j = 0; j < u->k; j++) {
        const double *point = u->points + j * u->p;
        double square = 0.0;
        for (int64_t i = 0; i < u->p; i++)
            square += (v[i] - point[i]) * (v[i] - point[i]);
        at->distances[j] = sqrt(square);
        if (square > 0.0) {
            double pull = u->mass[j] / at->distances[j];
            at->curvature += pull;
            for (int64_t i = 0; i < u->p; i++)
                at->gradient[i] += pull * (v[i] - point[i]);
        }
    }
}

/* The sum at v + share · step minus the sum at v, without the cancellation of that difference. */
static double change(const struct cloud *u, const double *v, const double *step, double share,
                     const double *distances)
{
    double total = 0.0;
    for (int64_t j = 0; j < u->k; j++) {
        const double *point = u->points + j * u->p;
        double square = 0.0, inner = 0.0;
        for (int64_t i = 0; i < u->p; i++) {
            double away = v[i] - point[i], move = share * step[i];
            square += (away + move) * (away + move);
            inner += move * (2.0 * away + move);
        }
        double both = sqrt(square) + distances[j];
        total += both > 0.0 ? u->mass[j] * inner / both : 0.0;
    }
    return total;
}

/* Kuhn's test of point j: v becomes the point if it is the minimiser, else Vardi & Zhang's step away from it. */
static bool leave(const struct cloud *u, int64_t j, struct place *at)
{
    const double *point = u->points + j * u->p;
    look(u, point, at);
    double size = length(at->gradient, u->p);
    bool stays = size - u->mass[j] <= AT_POINT * u->total;
    double share = stays ? 0.0 : (1.0 - u->mass[j] / size) / at->curvature;
    for (int64_t i = 0; i < u->p; i++)
        at->v[i] = stays ? point[i] : point[i] - share * at->gradient[i];
    return stays;
}

/* v becomes the point that is the minimiser, or a start below every point; near are points that may be the best. */
static void start(const struct cloud *u, const double *reach, const int64_t *near, int64_t n_near, double typical,
                  double *height, struct place *at)
{
    memset(at->v, 0, (size_t)u->p * sizeof *at->v);
    for (int64_t i = 0; i < n_near; i++)
        height[i] = change(u, at->v, u->points + near[i] * u->p, 1.0, reach);
    int64_t lowest = smallest(height, n_near);
    /* Rounding cannot order points closer together than this: any of them may be the minimiser. */
    double slack = height[lowest] + 1e-13 * u->total * typical;
    for (int64_t i = 0; i < n_near; i++)
        if (height[i] <= slack && leave(u, near[i], at))
            return;
    if (height[lowest] > 0.0)
        memset(at->v, 0, (size_t)u->p * sizeof *at->v);
    else
        leave(u, near[lowest], at);
}

static void exchange(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* b becomes the solution of A x = b, by Gauss's elimination with row exchanges; zeros where A is singular. */
static void solve(double *A, double *b, int64_t p)
{
    for (int64_t c = 0; c < p; c++) {
        int64_t best = c;
        for (int64_t i = c + 1; i < p; i++)
            best = fabs(A[i * p + c]) > fabs(A[best * p + c]) ? i : best;
        if (A[best * p + c] == 0.0) {
            memset(b, 0, (size_t)p * sizeof *b);
            return;
        }
        for (int64_t m = c; m < p; m++)
            exchange(A + c * p + m, A + best * p + m);
        exchange(b + c, b + best);
        for (int64_t i = c + 1; i < p; i++) {
            double share = A[i * p + c] / A[c * p + c];
            for (int64_t m = c + 1; m < p; m++)
                A[i * p + m] -= share * A[c * p + m];
            b[i] -= share * b[c];
        }
    }
    for (int64_t c = p - 1; c >= 0; c--) {
        for (int64_t m = c + 1; m < p; m++)
            b[c] -= A[c * p + m] * b[m];
        b[c] /= A[c * p + c];
    }
}

/* Hessian Σ w/d (I − r rᵀ) with r the unit vector from the point, and the step that it gives the gradient. */
static void newton_step(const struct cloud *u, struct place *at)
{
    int64_t p = u->p;
    double *row = at->trial;
    memset(at->hessian, 0, (size_t)(p * p) * sizeof *at->hessian);
    for (int64_t j = 0; j < u->k; j++) {
        double share = sqrt(u->mass[j] / at->distances[j]) / at->distances[j];
        for (int64_t i = 0; i < p; i++)
            row[i] = (at->v[i] - u->points[j * p + i]) * share;
        for (int64_t i = 0; i < p; i++)
            for (int64_t m = 0; m < p; m++)
                at->hessian[i * p + m] -= row[i] * row[m];
    }
    for (int64_t i = 0; i < p; i++)
        at->hessian[i * p + i] += at->curvature * (1.0 + 1e-15);
    memcpy(at->newton, at->gradient, (size_t)p * sizeof *at->newton);
    solve(at->hessian, at->newton, p);
}

/* Move v by a step, halved until it lowers the sum as its slope promises; false where it never does. */
static bool go_along(const struct cloud *u, struct place *at, const double *step)
{
    double slope = product(at->gradient, step, u->p), size = length(step, u->p);
    double shortest = 2e-16 * length(at->v, u->p); /* what added to v can still be seen */
    for (double share = 1.0; slope > 0.0 && share * size > shortest && share > 1e-18; share *= 0.5)
        if (change(u, at->v, step, -share, at->distances) <= -0.1 * share * slope) {
            for (int64_t i = 0; i < u->p; i++)
                at->v[i] -= share * step[i];
            return true;
        }
    return false;
}

/* Newton's step where it goes down, else Weiszfeld's. */
static bool go_down(const struct cloud *u, struct place *at)
{
    for (int64_t i = 0; i < u->p; i++)
        at->weiszfeld[i] = at->gradient[i] / at->curvature;
    return go_along(u, at, at->newton) || go_along(u, at, at->weiszfeld);
}

/* What the search found: the point that the minimiser equals or −1, iterations, and whether it converged. */
static void descend(const struct cloud *u, struct place *at, double typical, double tol, int64_t max_iter,
                    int64_t *found)
{
    double total = u->total;
    look(u, at->v, at);
    for (int64_t round = 0; round < max_iter; round++) {
        int64_t nearest = smallest(at->distances, u->k);
        found[0] = at->distances[nearest] == 0.0 ? nearest : -1;
        found[1] = round;
        found[2] = 1;
        if (found[0] >= 0) /* the minimiser, or too close to it for the way there to be seen */
            return;
        double size = length(at->gradient, u->p);
        newton_step(u, at);
        bool small = length(at->newton, u->p) <= tol * typical;
        if (size <= tol * total && (small || size <= 4e-16 * (double)u->k * total)) {
            for (int64_t i = 0; i < u->p; i++)
                at->v[i] -= at->newton[i];
            look(u, at->v, at);
            return;
        }
        if (!go_down(u, at)) { /* rounding hides any further descent */
            found[2] = size <= at_least(tol, 1e-12) * total;
            return;
        }
        look(u, at->v, at);
        nearest = smallest(at->distances, u->k);
        if (at->distances[nearest] == 0.0) {
            leave(u, nearest, at);
            look(u, at->v, at);
        }
    }
    found[0] = -1;
    found[1] = max_iter;
    found[2] = 0;
}

/* Σ a b, in any order. */
static double inner(const double *RESTRICT a, const double *RESTRICT b, int64_t d)
{
    double total = 0.0;
    SUM(total)
    for (int64_t i = 0; i < d; i++)
        total += a[i] * b[i];
    return total;
}

/* Row j of Cholesky's factor of a matrix that row j of L holds, given the rows before it; false where what is left of
   the diagonal is too small a share of it for that, and not zero. A column whose pivot is zero stays zero. */
static bool factor_row(double *L, int64_t k, int64_t j)
{
    double *row = L + j * k, size = row[j], left = size;
    for (int64_t i = 0; i < j; i++) {
        double pivot = L[i * k + i];
        row[i] = pivot > 0.0 ? (row[i] - product(row, L + i * k, i)) / pivot : 0.0;
        left -= row[i] * row[i];
    }
    row[j] = left > 0.0 ? sqrt(left) : 0.0;
    memset(row + j + 1, 0, (size_t)(k - j - 1) * sizeof *row);
    return size == 0.0 || (isfinite(size) && left > INDEPENDENT_SHARE * size);
}

/* k coordinates of k points in d dimensions with the same distances from each other and, at the origin, from a reference:
   Cholesky's factor L of their products (u − c)·(u′ − c). found[0] becomes 1, or 0 where points are so nearly dependent,
   so near to each other or so far away that rounding would spoil it. */
EXPORT int coordinates(const double *points, int64_t k, int64_t d, const double *RESTRICT reference, double *L,
                       int64_t *found)
{
    double *away = malloc((size_t)(k * d) * sizeof *away);
    if (away == NULL)
        return NO_MEMORY;
    double longest = 0.0;
    found[0] = 1;
    for (int64_t j = 0; j < k && found[0]; j++) {
        for (int64_t i = 0; i < d; i++)
            away[j * d + i] = points[j * d + i] - reference[i];
        for (int64_t i = 0; i <= j; i++)
            L[j * k + i] = inner(away + j * d, away + i * d, d);
        longest = larger(L[j * k + j], longest);
        found[0] = factor_row(L, k, j);
    }
    found[0] = found[0] && longest > LEAST_SQUARE && longest < LARGEST_SQUARE;
    free(away);
    return DONE;
}

/* Distances from the minimiser to the points, and in found: the point that it equals or −1, iterations, converged.

   Points are distinct, not collinear, and shifted so that the origin is near the majority; reach are their
   distances from it, near those that may be the best, typical is a scale that points far away do not move. */
EXPORT int minimise(const double *points, int64_t k, int64_t p, const double *mass, const double *reach,
                    const int64_t *near, int64_t n_near, double typical, double tol, int64_t max_iter,
                    double *distances, int64_t *found)
{
    struct cloud u = {points, mass, k, p, 0.0};
    if (!rows_exist(near, n_near, k))
        return BAD_ROW;
    double *work = malloc((size_t)(p * (5 + p) + n_near) * sizeof *work);
    if (work == NULL)
        return NO_MEMORY;
    struct place at = {work, distances, work + p, work + 2 * p, work + 3 * p, work + 4 * p, work + 5 * p, 0.0};
    for (int64_t j = 0; j < k; j++)
        u.total += mass[j];
    start(&u, reach, near, n_near, typical, work + p * (5 + p), &at);
    descend(&u, &at, typical, tol, max_iter, found);
    free(work);
    return DONE;
}
