/* Sums over rows for all levels of truncation at once; few columns.

   Rows are taken a few at a time, column by column: loops over them are long and have no stride. */
#include "common.h"
#include "resistant.h"

#define FEW 128 /* rows at a time: what a level needs of them stays in the nearest cache */

/* What all levels share, and a number of each. */
typedef struct {
    int64_t count;
    const double *phi, *tau, *tukey; /* tukey is zero for Huber's ψ */
    double floor;                    /* of ψ′ */
    bool exact;                      /* keep what is negative of Tukey's ψ′ */
} levels;

/* Some rows, and what a level makes of them. */
typedef struct {
    int64_t n, d;
    const double *y, *weights; /* no weights are ones */
    double *columns;           /* FEW numbers each */
    double r[FEW], psi[FEW], rho[FEW], slope[FEW];
} few_rows;

static void take(few_rows *rows, const double *Z, const double *y, const double *weights, int64_t n, int64_t d)
{
    rows->n = n, rows->d = d, rows->y = y, rows->weights = weights;
    for (int64_t j = 0; j < d; j++)
        for (int64_t i = 0; i < n; i++)
            rows->columns[j * FEW + i] = Z[i * d + j];
}

static void residuals(few_rows *rows, const levels *all, int64_t level)
{
    double *RESTRICT r = rows->r;
    memcpy(r, rows->y, (size_t)rows->n * sizeof *r);
    for (int64_t j = 0; j < rows->d; j++) {
        const double *RESTRICT z = rows->columns + j * FEW;
        double phi = all->phi[j * all->count + level];
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++)
            r[i] -= z[i] * phi;
    }
}

/* ψ(r) and its integral ρ(r), and ψ′(r) if it is asked for. */
static inline void huber_terms(few_rows *rows, double tau, double floor, bool slopes)
{
    const double *RESTRICT r = rows->r;
    double *RESTRICT psi = rows->psi, *RESTRICT rho = rows->rho, *RESTRICT slope = rows->slope;
    INDEPENDENT
    for (int64_t i = 0; i < rows->n; i++) {
        double inside = clip(r[i], -tau, tau);
        psi[i] = inside;
        rho[i] = inside * (r[i] - 0.5 * inside);
        if (slopes)
            slope[i] = fabs(r[i]) <= tau ? 1.0 : floor;
    }
}

static inline void tukey_terms(few_rows *rows, double tau, double floor, bool exact, bool slopes)
{
    const double *RESTRICT r = rows->r;
    double *RESTRICT psi = rows->psi, *RESTRICT rho = rows->rho, *RESTRICT slope = rows->slope;
    double inverse = 1.0 / (tau * tau), most = tau * tau / 6.0;
    INDEPENDENT
    for (int64_t i = 0; i < rows->n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0), steep = u * (5.0 * u - 4.0);
        psi[i] = r[i] * u * u;
        rho[i] = most * (1.0 - u * u * u);
        if (slopes)
            slope[i] = exact ? steep : at_least(steep, floor);
    }
}

static void terms(few_rows *rows, const levels *all, int64_t level, bool slopes)
{
    double tau = all->tau[level];
    residuals(rows, all, level);
    if (all->tukey[level] != 0.0)
        tukey_terms(rows, tau, all->floor, all->exact, slopes);
    else if (slopes)
        huber_terms(rows, tau, all->floor, true);
    else
        huber_terms(rows, tau, all->floor, false);
}

static double dot(const double *RESTRICT x, const double *RESTRICT y, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static double sum_of(const double *x, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static void multiply(double *RESTRICT x, const double *RESTRICT by, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] *= by[i];
}

static void weigh(const few_rows *rows, double *x)
{
    if (rows->weights)
        multiply(x, rows->weights, rows->n);
}

/* Add what a level makes of some rows to its sums; those of all levels are `count` numbers apart. */
static void add_level(few_rows *rows, const levels *all, int64_t level, double *value, double *gradient,
                      double *hessian)
{
    int64_t n = rows->n, d = rows->d, count = all->count;
    double weighted[FEW];
    terms(rows, all, level, hessian != NULL);
    value[level] += rows->weights ? dot(rows->rho, rows->weights, n) : sum_of(rows->rho, n);
    weigh(rows, rows->psi);
    if (hessian)
        weigh(rows, rows->slope);
    for (int64_t a = 0; a < d; a++) {
        const double *column = rows->columns + a * FEW;
        gradient[a * count + level] += dot(rows->psi, column, n);
        if (!hessian)
            continue;
        memcpy(weighted, rows->slope, (size_t)n * sizeof *weighted);
        multiply(weighted, column, n);
        for (int64_t b = 0; b <= a; b++)
            hessian[(a * d + b) * count + level] += dot(weighted, rows->columns + b * FEW, n);
    }
}

static void mirror(double *hessian, int64_t d, int64_t count)
{
    for (int64_t a = 0; a < d; a++)
        for (int64_t b = 0; b < a; b++)
            memcpy(hessian + (b * d + a) * count, hessian + (a * d + b) * count, (size_t)count * sizeof *hessian);
}

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
        take(&rows, Z + start * d, y + start, weights ? weights + start : NULL, shorter(FEW, n - start), d);
        for (int64_t level = 0; level < count; level++) {
            double *own = psi + level * FEW;
            terms(&rows, &all, level, true);
            weigh(&rows, rows.slope);
            slope[level] += sum_of(rows.slope, rows.n);
            inside[level] += dot(rows.slope, rows.r, rows.n);
            memcpy(own, rows.psi, sizeof rows.psi);
            multiply(own, far + start, rows.n);
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
