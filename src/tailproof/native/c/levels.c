/* Sums over rows for all levels of truncation at once; few columns. */
#include "few_rows.h"
#include "resistant.h"

/* Add Σ vρ(r), Σ vψ(r)z and Σ vψ′(r)zz' of every level (last axis) to those of each fold: rows are in the order of
   their folds, of which each ends where `ends` says. Without an array for them there are no Hessians. */
EXPORT int level_sums(const double *Z, const double *y, const double *weights, const int64_t *ends, int64_t folds,
                      int64_t d, const double *phi, const double *tau, const double *tukey, int64_t count,
                      double floor, int exact, double *value, double *gradient, double *hessian)
{
    levels all = {count, phi, tau, tukey, floor, exact != 0};
    few_rows rows;
    rows.columns = malloc((size_t)(d * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    for (int64_t k = 0, start = 0; k < folds; k++) {
        double *square = hessian ? hessian + k * d * d * count : NULL;
        for (; start < ends[k]; start += rows.n) {
            take(&rows, Z + start * d, y + start, weights ? weights + start : NULL, shorter(FEW, ends[k] - start), d);
            for (int64_t level = 0; level < count; level++)
                add_level(&rows, &all, level, value + k * count, gradient + k * d * count, square);
        }
        if (square)
            mirror(square, d, count);
    }
    free(rows.columns);
    return DONE;
}

/* Add Σ vψ′(r) and Σ vψ′(r)r of a level, and write down fψ(r) of every row: nothing else leaves the registers. */
static void huber_moments(const few_rows *rows, double tau, double floor, const double *RESTRICT far, double *slope,
                          double *inside, double *RESTRICT own)
{
    const double *RESTRICT r = rows->r, *RESTRICT v = rows->weights;
    double steep = 0.0, kept = 0.0;
    SUM(steep, kept)
    for (int64_t i = 0; i < rows->n; i++) {
        double share = fabs(r[i]) <= tau ? v[i] : floor * v[i];
        steep += share;
        kept += share * r[i];
        own[i] = far[i] * clip(r[i], -tau, tau);
    }
    *slope += steep, *inside += kept;
}

/* The same of Tukey's ψ(r) = r u², u = (1 − r²/τ²)₊, whose slope is u(5u − 4). */
static void tukey_moments(const few_rows *rows, double tau, const double *RESTRICT far, double *slope, double *inside,
                          double *RESTRICT own)
{
    const double *RESTRICT r = rows->r, *RESTRICT v = rows->weights;
    double steep = 0.0, kept = 0.0, inverse = 1.0 / (tau * tau);
    SUM(steep, kept)
    for (int64_t i = 0; i < rows->n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0), share = v[i] * u * (5.0 * u - 4.0);
        steep += share;
        kept += share * r[i];
        own[i] = far[i] * r[i] * u * u;
    }
    *slope += steep, *inside += kept;
}

/* Add Σ vψ′(r), Σ vψ′(r)r and Σ v²hψψ of every two levels; `far` is v√h of every row. */
EXPORT int level_moments(const double *Z, const double *y, const double *weights, const double *far, int64_t n,
                         int64_t d, const double *phi, const double *tau, const double *tukey, int64_t count,
                         double floor, double *slope, double *inside, double *products)
{
    levels all = {count, phi, tau, tukey, floor, true};
    few_rows rows;
    rows.columns = malloc((size_t)((d + count) * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    double *psi = rows.columns + d * FEW;
    for (int64_t start = 0; start < n; start += rows.n) {
        take(&rows, Z + start * d, y + start, weights + start, shorter(FEW, n - start), d);
        for (int64_t level = 0; level < count; level++) {
            double *own = psi + level * FEW;
            residuals(&rows, &all, level);
            if (tukey[level] != 0.0)
                tukey_moments(&rows, tau[level], far + start, slope + level, inside + level, own);
            else
                huber_moments(&rows, tau[level], floor, far + start, slope + level, inside + level, own);
            for (int64_t other = 0; other <= level; other++)
                products[level * count + other] += dot(own, psi + other * FEW, rows.n);
        }
    }
    mirror(products, count, 1);
    free(rows.columns);
    return DONE;
}

/* Σ sψ(r)/r over levels with shares s, for every row: 1 for a residual of zero. */
EXPORT int level_weights(const double *Z, const double *y, int64_t n, int64_t d, const double *phi,
                         const double *tau, const double *tukey, const double *shares, int64_t count,
                         double *weights)
{
    levels all = {count, phi, tau, tukey, 0.0, true};
    few_rows rows;
    rows.columns = malloc((size_t)(d * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    memset(weights, 0, (size_t)n * sizeof *weights);
    for (int64_t start = 0; start < n; start += rows.n) {
        double *RESTRICT own = weights + start;
        take(&rows, Z + start * d, y + start, NULL, shorter(FEW, n - start), d);
        for (int64_t level = 0; level < count; level++) {
            double share = shares[level];
            terms(&rows, &all, level, false);
            INDEPENDENT
            for (int64_t i = 0; i < rows.n; i++)
                own[i] += share * (rows.r[i] != 0.0 ? rows.psi[i] / rows.r[i] : 1.0);
        }
    }
    free(rows.columns);
    return DONE;
}

/* Σ vψ(r)z of every fold and level (last axis) over the rows that are not in the fold; φ is that of fold and level. Rows
   are in the order of folds, of which each ends where `ends` says. */
EXPORT int gradients_of_rest(const double *Z, const double *y, const double *weights, int64_t n,
                             const int64_t *ends, int64_t folds, int64_t d, const double *phi, const double *tau,
                             const double *tukey, int64_t count, double *gradient)
{
    few_rows rows;
    rows.columns = malloc((size_t)(d * FEW + count) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    double *value = rows.columns + d * FEW; /* which nobody asks for */
    memset(value, 0, (size_t)count * sizeof *value);
    memset(gradient, 0, (size_t)(folds * d * count) * sizeof *gradient);
    for (int64_t k = 0, first = 0; k < folds; first = ends[k++]) {
        levels all = {count, phi + k * d * count, tau, tukey, 0.0, true};
        for (int64_t start = 0; start < n; start += rows.n) {
            start = start == first ? ends[k] : start;
            int64_t stop = start < first ? first : n;
            take(&rows, Z + start * d, y + start, weights ? weights + start : NULL, shorter(FEW, stop - start), d);
            for (int64_t level = 0; level < count; level++)
                add_level(&rows, &all, level, value, gradient + k * d * count, NULL);
        }
    }
    free(rows.columns);
    return DONE;
}

/* Targets less predictions of all rows but those from start to stop. */
static void residuals_of_rest(const double *y, const double *p, int64_t n, int64_t start, int64_t stop, double *r)
{
    for (int64_t i = 0; i < start; i++)
        r[i] = y[i] - p[i];
    for (int64_t i = stop; i < n; i++)
        r[i - stop + start] = y[i] - p[i];
}

/* Resistant means of the residuals of every level (last axis) by fits without a fold, over the other rows: 0 for
   levels without truncation, NaN for what is unusual. Levels that are alike share the scale of the first. Rows are in
   the order of folds, each of which ends where `ends` says; `p` has predictions of fold, level and row. `how` is a
   resistance for each fold. */
EXPORT int means_of_rest(const double *p, const double *y, int64_t n, const int64_t *ends, int64_t folds,
                         const double *tau, int64_t count, int alike, const int64_t *blocks, const double *numbers,
                         double *means)
{
    int64_t most = 0;
    for (int64_t k = 0; k < folds; k++) {
        resistance how = resistance_of(blocks + 5 * k, numbers + 4 * k);
        int64_t size = resistance_work(n, &how);
        most = most > size ? most : size;
    }
    double *work = malloc((size_t)(n + most) * sizeof *work), *r = work + most;
    if (work == NULL)
        return NO_MEMORY;
    for (int64_t k = 0, start = 0; k < folds; start = ends[k++]) {
        resistance how = resistance_of(blocks + 5 * k, numbers + 4 * k);
        int64_t rest = n - (ends[k] - start);
        double scale = NAN;
        bool known = false;
        for (int64_t level = 0; level < count; level++, p += n, means++) {
            *means = 0.0;
            if (isinf(tau[level]))
                continue;
            residuals_of_rest(y, p, n, start, ends[k], r);
            scale = known && alike ? scale : resistant_scale(r, rest, &how, work);
            known = true;
            *means = resistant_mean(r, rest, scale, &how, work);
        }
    }
    free(work);
    return DONE;
}
