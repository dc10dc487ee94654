/* Sums over rows for all levels of truncation at once; few columns. */
#include "exp_log.h"
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
            take(&rows, Z, y, weights, start, ends[k], d);
            for (int64_t level = 0; level < count; level++)
                add_level(&rows, &all, level, value + k * count, gradient + k * d * count, square);
        }
        if (square)
            mirror(square, d, count);
    }
    free(rows.columns);
    return DONE;
}

/* Σ vψ′(r), Σ vψ′(r)r, Σ p² and Σ pq, with p = fψ(r) of a level for numbers f of the rows, and q the same of another. */
typedef struct {
    double slope, inside, square, product;
} moments;

/* Those of Huber's ψ, or of Tukey's ψ(r) = r u², u = (1 − r²/τ²)₊, whose slope is u(5u − 4). The first level writes p down
   for others to be multiplied with. */
INLINED moments moments_of(const few_rows *rows, bool tukey, bool first, double tau, double floor,
                           const double *RESTRICT far, double *RESTRICT other)
{
    const double *RESTRICT r = rows->r, *RESTRICT v = rows->weights;
    double slope = 0.0, inside = 0.0, square = 0.0, product = 0.0, inverse = 1.0 / (tau * tau);
    SUM(slope, inside, square, product)
    for (int64_t i = 0; i < rows->n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0);
        double share = tukey ? v[i] * u * (5.0 * u - 4.0) : fabs(r[i]) <= tau ? v[i] : floor * v[i];
        double own = far[i] * (tukey ? r[i] * u * u : clip(r[i], -tau, tau));
        slope += share;
        inside += share * r[i];
        square += own * own;
        if (first)
            other[i] = own;
        else
            product += own * other[i];
    }
    return (moments){slope, inside, square, first ? square : product};
}

/* Add what a level makes of some rows to its sums; `beside` is that of the first level. */
static void add_moments(few_rows *rows, const levels *all, int64_t level, bool first, const double *far, double *beside,
                        double *slope, double *inside, double *products)
{
    double tau = all->tau[level], floor = all->floor;
    bool tukey = all->tukey[level] != 0.0;
    moments found;
    residuals(rows, all, level);
    if (first)
        found = tukey ? moments_of(rows, true, true, tau, floor, far, beside)
                      : moments_of(rows, false, true, tau, floor, far, beside);
    else
        found = tukey ? moments_of(rows, true, false, tau, floor, far, beside)
                      : moments_of(rows, false, false, tau, floor, far, beside);
    slope[level] += found.slope, inside[level] += found.inside;
    products[level] += found.square, products[all->count + level] += found.product;
}

/* v√h of some rows, and v where all weights are ones. */
static void take_reach(few_rows *rows, const double *RESTRICT reach, double *RESTRICT ones, double *RESTRICT far)
{
    for (int64_t i = 0; i < rows->n && !rows->weights; i++)
        ones[i] = 1.0;
    rows->weights = rows->weights ? rows->weights : ones;
    for (int64_t i = 0; i < rows->n; i++)
        far[i] = rows->weights[i] * sqrt(reach[i]);
}

/* Add Σ vψ′(r) and Σ vψ′(r)r of every level, and Σ v²hψψ of every level with itself and then with the one named, with the
   reach h of every row. */
EXPORT int level_moments(const double *Z, const double *y, const double *weights, const double *reach, int64_t n,
                         int64_t d, const double *phi, const double *tau, const double *tukey, int64_t count,
                         int64_t named, double floor, double *slope, double *inside, double *products)
{
    levels all = {count, phi, tau, tukey, floor, true};
    few_rows rows;
    double far[FEW], ones[FEW], beside[FEW];
    rows.columns = malloc((size_t)(d * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += rows.n) {
        take(&rows, Z, y, weights, start, n, d);
        take_reach(&rows, reach + start, ones, far);
        add_moments(&rows, &all, named, true, far, beside, slope, inside, products);
        for (int64_t level = 0; level < count; level++)
            if (level != named)
                add_moments(&rows, &all, level, false, far, beside, slope, inside, products);
    }
    free(rows.columns);
    return DONE;
}

/* Add Σ z and Σ zz' of rows of two columns, as they lie in memory: nothing leaves the registers. */
static void add_products_of_two(const double *RESTRICT Z, int64_t n, double *sums, double *products)
{
    double first = 0.0, second = 0.0, square = 0.0, product = 0.0, other = 0.0;
    SUM(first, second, square, product, other)
    for (int64_t i = 0; i < n; i++) {
        double z = Z[2 * i], u = Z[2 * i + 1];
        first += z, second += u;
        square += z * z, product += z * u, other += u * u;
    }
    sums[0] += first, sums[1] += second;
    products[0] += square, products[2] += product, products[3] += other;
}

/* Add Σ vz and Σ vzz' of rows; no weights are ones. */
EXPORT int row_products(const double *Z, const double *weights, int64_t n, int64_t d, double *sums, double *products)
{
    few_rows rows;
    rows.columns = malloc((size_t)(d * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    bool simple = d == 2 && !weights;
    if (simple)
        add_products_of_two(Z, n, sums, products);
    for (int64_t start = 0; start < n && !simple; start += rows.n) {
        take(&rows, Z, Z, weights, start, n, d);
        for (int64_t i = 0; i < rows.n; i++)
            rows.psi[i] = rows.slope[i] = weights ? rows.weights[i] : 1.0;
        add_products(&rows, 1, 0, sums, products);
    }
    mirror(products, d, 1);
    free(rows.columns);
    return DONE;
}

/* Add sψ(r)/r of a level with share s for every row: ψ(r)/r is min(1, τ/|r|) for Huber's ψ and (1 − r²/τ²)₊² for
   Tukey's. */
static void add_weights(const few_rows *rows, double tau, bool tukey, double share, double *RESTRICT own)
{
    const double *RESTRICT r = rows->r;
    double inverse = 1.0 / (tau * tau);
    if (tukey) {
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++) {
            double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0);
            own[i] += share * u * u;
        }
    } else {
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++)
            own[i] += share * (fabs(r[i]) <= tau ? 1.0 : tau / fabs(r[i]));
    }
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
        double *own = weights + start;
        take(&rows, Z, y, NULL, start, n, d);
        for (int64_t level = 0; level < count; level++) {
            residuals(&rows, &all, level);
            add_weights(&rows, tau[level], tukey[level] != 0.0, shares[level], own);
        }
    }
    free(rows.columns);
    return DONE;
}

/* How sizes of residuals are measured: t = log(|r − middle| + offset) − share ψ(r). */
typedef struct {
    double tau, middle, offset, share;
    bool tukey;
} measure;

/* t of some rows whose residuals are in place of targets, in place of r. */
static void take_sizes(few_rows *rows, const measure *how)
{
    const double *RESTRICT r = rows->y;
    double *RESTRICT t = rows->r, tau = how->tau, inverse = 1.0 / (tau * tau);
    INDEPENDENT
    for (int64_t i = 0; i < rows->n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0), psi = how->tukey ? r[i] * u * u : clip(r[i], -tau, tau);
        t[i] = log_of(fabs(r[i] - how->middle) + how->offset) - how->share * psi;
    }
}

/* Add Σ vt, Σ vt², Σ vtz and Σ vz, given t in place of r and v in place of ψ. */
static void add_sizes(const few_rows *rows, double *sums)
{
    const double *RESTRICT t = rows->r, *RESTRICT v = rows->psi;
    double first = 0.0, second = 0.0;
    SUM(first, second)
    for (int64_t i = 0; i < rows->n; i++)
        first += v[i] * t[i], second += v[i] * t[i] * t[i];
    sums[0] += first, sums[1] += second;
    for (int64_t j = 0; j < rows->d; j++) {
        const double *RESTRICT z = rows->columns + j * rows->few;
        double by_size = 0.0, plain = 0.0;
        SUM(by_size, plain)
        for (int64_t i = 0; i < rows->n; i++)
            by_size += v[i] * t[i] * z[i], plain += v[i] * z[i];
        sums[2 + j] += by_size, sums[2 + rows->d + j] += plain;
    }
}

/* Add Σ vt, Σ vt², Σ vtz and Σ vz, with t = log(|r − middle| + offset) − share ψ(r) − z'slopes and weights v, or ones. */
EXPORT int log_size_sums(const double *Z, const double *r, const double *weights, int64_t n, int64_t d, double tau,
                     int tukey, double middle, double offset, double share, const double *slopes, double *sums)
{
    measure how = {tau, middle, offset, share, tukey != 0};
    levels one = {1, slopes, NULL, NULL, 0.0, true};
    few_rows rows;
    rows.columns = malloc((size_t)(d * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += rows.n) {
        take(&rows, Z, r, weights, start, n, d);
        take_sizes(&rows, &how);
        rows.y = rows.r;
        residuals_to(&rows, &one, 0, rows.rho);
        for (int64_t i = 0; i < rows.n; i++)
            rows.r[i] = rows.rho[i], rows.psi[i] = rows.weights ? rows.weights[i] : 1.0;
        add_sizes(&rows, sums);
    }
    free(rows.columns);
    return DONE;
}

/* ψ(r) of every residual of a level, and Σ vψ′(r): that is u(5u − 4) for Tukey's ψ, and 1 or the floor for Huber's. */
INLINED double pull(const double *RESTRICT r, const double *RESTRICT v, int64_t n, double tau, bool tukey, double floor,
                    double *RESTRICT psi)
{
    double steep = 0.0, inverse = 1.0 / (tau * tau);
    SUM(steep)
    for (int64_t i = 0; i < n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0);
        psi[i] = tukey ? r[i] * u * u : clip(r[i], -tau, tau);
        steep += v[i] * (tukey ? u * (5.0 * u - 4.0) : fabs(r[i]) <= tau ? 1.0 : floor);
    }
    return steep;
}

/* ψ(r) and Σ vψ′(r) of every level (first axis), from its residuals. */
EXPORT int level_pulls(const double *r, const double *weights, int64_t n, const double *tau, const double *tukey,
                       int64_t count, double floor, double *psi, double *slope)
{
    for (int64_t level = 0; level < count; level++, r += n, psi += n)
        slope[level] = tukey[level] != 0.0 ? pull(r, weights, n, tau[level], true, floor, psi)
                                           : pull(r, weights, n, tau[level], false, floor, psi);
    return DONE;
}

/* y − z'φ of every row. */
EXPORT int level_residuals(const double *Z, const double *y, int64_t n, int64_t d, const double *phi, double *r)
{
    levels one = {1, phi, NULL, NULL, 0.0, true};
    few_rows rows;
    rows.columns = malloc((size_t)(d * FEW) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += rows.n) {
        take(&rows, Z, y, NULL, start, n, d);
        residuals_to(&rows, &one, 0, r + start);
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
            take(&rows, Z, y, weights, start, start < first ? first : n, d);
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
            double first = resistant_start(r, rest, &how, work);
            scale = known && alike ? scale : resistant_scale(r, rest, first, &how, work);
            known = true;
            *means = resistant_mean(r, rest, first, scale, &how, work);
        }
    }
    free(work);
    return DONE;
}
