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
