/* Sums over rows that Newton's method needs, for all levels of truncation at once; few columns. */
#include "common.h"

/* What all levels share, and a number of each. */
typedef struct {
    int64_t count;
    const double *tau, *tukey; /* tukey is zero for Huber's ψ */
    double floor;              /* of ψ′ */
    bool exact;                /* keep what is negative of Tukey's ψ′ */
} levels;

/* ψ(r), its integral and its slope, at every level. */
static void terms(levels all, const double *RESTRICT r, double *RESTRICT psi, double *RESTRICT rho,
                  double *RESTRICT slope)
{
    INDEPENDENT
    for (int64_t l = 0; l < all.count; l++) {
        double tau = all.tau[l], inside = clip(r[l], -tau, tau);
        double u = at_least(1.0 - (r[l] / tau) * (r[l] / tau), 0.0), steep = u * (5.0 * u - 4.0);
        bool tukey = all.tukey[l] != 0.0;
        psi[l] = tukey ? r[l] * u * u : inside;
        rho[l] = tukey ? tau * tau / 6.0 * (1.0 - u * u * u) : inside * (r[l] - 0.5 * inside);
        double huber = fabs(r[l]) <= tau ? 1.0 : all.floor;
        slope[l] = tukey ? (all.exact ? steep : at_least(steep, all.floor)) : huber;
    }
}

static void residuals(const double *z, int64_t d, double y, const double *phi, int64_t count, double *RESTRICT r)
{
    for (int64_t l = 0; l < count; l++)
        r[l] = y;
    for (int64_t j = 0; j < d; j++) {
        const double *row = phi + j * count;
        INDEPENDENT
        for (int64_t l = 0; l < count; l++)
            r[l] -= z[j] * row[l];
    }
}

/* into[l] += factor × x[l] */
static void add(double factor, const double *RESTRICT x, int64_t count, double *RESTRICT into)
{
    INDEPENDENT
    for (int64_t l = 0; l < count; l++)
        into[l] += factor * x[l];
}

static void mirror(double *hessian, int64_t d, int64_t count)
{
    for (int64_t a = 0; a < d; a++)
        for (int64_t b = 0; b < a; b++)
            memcpy(hessian + (b * d + a) * count, hessian + (a * d + b) * count, (size_t)count * sizeof *hessian);
}

/* Add Σ vρ(r), Σ vψ(r)z and Σ vψ′(r)zz' of every level (last axis) to those of the fold that a row is in.

   No weights are ones, no fold is the only one, and without an array for them there are no Hessians. */
EXPORT int level_sums(const double *Z, const double *y, const double *weights, const int64_t *fold, int64_t n,
                      int64_t d, int64_t folds, const double *phi, const double *tau, const double *tukey,
                      int64_t count, double floor, int exact, double *value, double *gradient, double *hessian)
{
    levels all = {count, tau, tukey, floor, exact != 0};
    if (fold && !rows_exist(fold, n, folds))
        return BAD_ROW;
    double *work = malloc((size_t)(4 * count) * sizeof *work);
    if (work == NULL)
        return NO_MEMORY;
    double *r = work, *psi = r + count, *rho = psi + count, *slope = rho + count;
    for (int64_t i = 0; i < n; i++) {
        const double *z = Z + i * d;
        int64_t k = fold ? fold[i] : 0;
        double v = weights ? weights[i] : 1.0;
        residuals(z, d, y[i], phi, count, r);
        terms(all, r, psi, rho, slope);
        add(v, rho, count, value + k * count);
        for (int64_t a = 0; a < d; a++)
            add(v * z[a], psi, count, gradient + (k * d + a) * count);
        for (int64_t a = 0; hessian && a < d; a++)
            for (int64_t b = 0; b <= a; b++)
                add(v * z[a] * z[b], slope, count, hessian + ((k * d + a) * d + b) * count);
    }
    for (int64_t k = 0; hessian && k < folds; k++)
        mirror(hessian + k * d * d * count, d, count);
    free(work);
    return DONE;
}

#define TOGETHER 64 /* rows that go through the processor at once: they stay in its fastest cache */

/* Some rows, a column after the other: z = ((x − centre)/scale, constant), then y and the weight. Places that are
   left over are zero, and add nothing to any sum. */
static void gather(const double *X, const double *y, const double *weights, int64_t rows, int64_t d,
                   const double *centre, const double *scale, double constant, double *RESTRICT z)
{
    if (rows < TOGETHER)
        memset(z, 0, (size_t)((d + 3) * TOGETHER) * sizeof *z);
    for (int64_t j = 0; j < d; j++, z += TOGETHER)
        for (int64_t i = 0; i < rows; i++)
            z[i] = (X[i * d + j] - centre[j]) / scale[j];
    for (int64_t i = 0; i < rows; i++) {
        z[i] = constant;
        z[TOGETHER + i] = y[i];
        z[2 * TOGETHER + i] = weights ? weights[i] : 1.0;
    }
}

/* r = y − θ'z at one level of several. */
static void subtract(const double *z, const double *y, const double *theta, int64_t width, int64_t count,
                     double *RESTRICT r)
{
    for (int64_t i = 0; i < TOGETHER; i++)
        r[i] = y[i];
    for (int64_t j = 0; j < width; j++, z += TOGETHER)
        add(-theta[j * count], z, TOGETHER, r);
}

/* Residuals to vψ(r), and the sum of vρ(r). */
static double pull(double tau, bool tukey, const double *v, double *RESTRICT r)
{
    double total = 0.0;
    SUM(total)
    for (int64_t i = 0; i < TOGETHER; i++) {
        double inside = clip(r[i], -tau, tau);
        double u = tukey ? at_least(1.0 - (r[i] / tau) * (r[i] / tau), 0.0) : 0.0;
        total += v[i] * (tukey ? tau * tau / 6.0 * (1.0 - u * u * u) : inside * (r[i] - 0.5 * inside));
        r[i] = v[i] * (tukey ? r[i] * u * u : inside);
    }
    return total;
}

static double product(const double *a, const double *b)
{
    double total = 0.0;
    SUM(total)
    for (int64_t i = 0; i < TOGETHER; i++)
        total += a[i] * b[i];
    return total;
}

/* Σ vρ(r) and Σ vψ(r)z of every level (last axis) over rows that are scaled on the way; no weights are ones.

   The same as level_sums, for few levels: here rows and not levels go through the processor together. */
EXPORT int level_gradients(const double *X, const double *y, const double *weights, int64_t n, int64_t d,
                           const double *centre, const double *scale, double constant, const double *theta,
                           const double *tau, const double *tukey, int64_t count, double *value, double *gradient)
{
    int64_t width = d + 1;
    double *z = malloc((size_t)((width + 3) * TOGETHER) * sizeof *z);
    if (z == NULL)
        return NO_MEMORY;
    double *target = z + width * TOGETHER, *v = target + TOGETHER, *r = v + TOGETHER;
    memset(value, 0, (size_t)count * sizeof *value);
    memset(gradient, 0, (size_t)(width * count) * sizeof *gradient);
    for (int64_t i = 0; i < n; i += TOGETHER) {
        gather(X + i * d, y + i, weights ? weights + i : NULL, shorter(TOGETHER, n - i), d, centre, scale, constant, z);
        for (int64_t l = 0; l < count; l++) {
            subtract(z, target, theta + l, width, count, r);
            value[l] += pull(tau[l], tukey[l] != 0.0, v, r);
            for (int64_t j = 0; j < width; j++)
                gradient[j * count + l] += product(z + j * TOGETHER, r);
        }
    }
    free(z);
    return DONE;
}
