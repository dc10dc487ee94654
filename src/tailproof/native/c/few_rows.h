/* A few rows at a time, column by column, and what levels of truncation make of them: loops over rows are long and have
   no stride. */
#ifndef TAILPROOF_FEW_ROWS_H
#define TAILPROOF_FEW_ROWS_H

#include "common.h"

#define FEW 384 /* rows at a time, at most: what a level needs of them stays in the nearest cache */

/* Rows at a time: with few columns more of them, since sums leave the registers once for all of them. */
static inline int64_t few_of(int64_t d) { return d <= 4 ? FEW : FEW / 3; }


/* What all levels share, and a number of each. */
typedef struct {
    int64_t count;
    const double *phi, *tau, *tukey; /* tukey is zero for Huber's ψ */
    double floor;                    /* of ψ′ */
    bool exact;                      /* keep what is negative of Tukey's ψ′ */
} levels;

/* Some rows, and what a level makes of them. */
typedef struct {
    int64_t n, d, few;         /* up to `few` rows */
    const double *y, *weights; /* no weights are ones */
    double *columns;           /* `few` numbers each */
    double r[FEW], psi[FEW], rho[FEW], slope[FEW];
} few_rows;

/* Column by column; the number of columns is best known to the compiler. */
INLINED void turn(double *RESTRICT columns, const double *RESTRICT Z, int64_t n, int64_t few, int64_t d)
{
    for (int64_t j = 0; j < d; j++) {
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            columns[j * few + i] = Z[i * d + j];
    }
}

/* Copy the next rows from `start` on, of which there are n, column by column. */
static inline void take(few_rows *rows, const double *Z, const double *y, const double *weights, int64_t start,
                        int64_t n, int64_t d)
{
    rows->few = few_of(d), rows->n = shorter(rows->few, n - start), rows->d = d;
    rows->y = y + start, rows->weights = weights ? weights + start : NULL;
    if (d == 2)
        turn(rows->columns, Z + start * d, rows->n, rows->few, 2);
    else
        turn(rows->columns, Z + start * d, rows->n, rows->few, d);
}

/* r = y − Zφ of a level, two columns at a time: numbers go through memory. */
static inline void residuals_to(const few_rows *rows, const levels *all, int64_t level, double *RESTRICT r)
{
    int64_t n = rows->n, j = rows->d % 2;
    const double *RESTRICT y = rows->y, *RESTRICT first = rows->columns;
    double phi = j ? all->phi[level] : 0.0;
    if (j || !rows->d) {
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            r[i] = y[i] - (j ? first[i] * phi : 0.0);
    }
    for (; j < rows->d; j += 2) {
        const double *RESTRICT z = rows->columns + j * rows->few, *RESTRICT u = z + rows->few, *from = j ? r : y;
        double p = all->phi[j * all->count + level], q = all->phi[(j + 1) * all->count + level];
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            r[i] = from[i] - z[i] * p - u[i] * q;
    }
}

/* The same for the level's own use. */
static inline void residuals(few_rows *rows, const levels *all, int64_t level)
{
    residuals_to(rows, all, level, rows->r);
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

/* The same of Tukey's ψ(r) = r u², u = (1 − r²/τ²)₊, whose integral is τ²(1 − u³)/6 and whose slope u(5u − 4). */
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

/* What a level makes of the rows: its residuals, ψ and ρ, and ψ′ if it is asked for. */
static inline void terms(few_rows *rows, const levels *all, int64_t level, bool slopes)
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

/* Σ xy. */
static inline double dot(const double *RESTRICT x, const double *RESTRICT y, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Σ x. */
static inline double sum_of(const double *x, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* x ← x · by. */
static inline void multiply(double *RESTRICT x, const double *RESTRICT by, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] *= by[i];
}

/* Multiply by the weights of the rows, if they have any. */
static inline void weigh(const few_rows *rows, double *x)
{
    if (rows->weights)
        multiply(x, rows->weights, rows->n);
}

/* Add Σ ψz of some rows, and Σ ψ′zz' unless there is no array for it; sums of all levels are `count` apart. */
static inline void add_products(const few_rows *rows, int64_t count, int64_t level, double *gradient, double *hessian)
{
    int64_t n = rows->n, d = rows->d;
    double weighted[FEW];
    for (int64_t a = 0; a < d; a++) {
        const double *column = rows->columns + a * rows->few;
        gradient[a * count + level] += dot(rows->psi, column, n);
        if (!hessian)
            continue;
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            weighted[i] = rows->slope[i] * column[i];
        for (int64_t b = 0; b <= a; b++)
            hessian[(a * d + b) * count + level] += dot(weighted, rows->columns + b * rows->few, n);
    }
}

/* Σ ρ(r), Σ ψ(r)z of Huber's or Tukey's level for two columns and rows of weight one: nothing leaves the registers. */
static inline void huber_of_two(const few_rows *rows, double p, double q, double tau, double *sums)
{
    const double *RESTRICT y = rows->y, *RESTRICT z = rows->columns, *RESTRICT u = z + rows->few;
    double value = 0.0, first = 0.0, second = 0.0;
    SUM(value, first, second)
    for (int64_t i = 0; i < rows->n; i++) {
        double r = y[i] - z[i] * p - u[i] * q, psi = clip(r, -tau, tau);
        value += psi * (r - 0.5 * psi);
        first += psi * z[i];
        second += psi * u[i];
    }
    sums[0] = value, sums[1] = first, sums[2] = second;
}

/* The same of Tukey's ψ(r) = r u² and ρ(r) = τ²(1 − u³)/6, u = (1 − r²/τ²)₊. */
static inline void tukey_of_two(const few_rows *rows, double p, double q, double tau, double *sums)
{
    const double *RESTRICT y = rows->y, *RESTRICT z = rows->columns, *RESTRICT u = z + rows->few;
    double value = 0.0, first = 0.0, second = 0.0, inverse = 1.0 / (tau * tau), most = tau * tau / 6.0;
    SUM(value, first, second)
    for (int64_t i = 0; i < rows->n; i++) {
        double r = y[i] - z[i] * p - u[i] * q, kept = at_least(1.0 - r * r * inverse, 0.0);
        double psi = r * kept * kept;
        value += most * (1.0 - kept * kept * kept);
        first += psi * z[i];
        second += psi * u[i];
    }
    sums[0] = value, sums[1] = first, sums[2] = second;
}

/* Add Σ ρ and Σ ψz of a level of two columns to its sums. */
static inline void add_two_columns(const few_rows *rows, const levels *all, int64_t level, double *value,
                                   double *gradient)
{
    double sums[3], p = all->phi[level], q = all->phi[all->count + level];
    (all->tukey[level] != 0.0 ? tukey_of_two : huber_of_two)(rows, p, q, all->tau[level], sums);
    value[level] += sums[0];
    gradient[level] += sums[1];
    gradient[all->count + level] += sums[2];
}

/* Add what a level makes of some rows to its sums. */
static inline void add_level(few_rows *rows, const levels *all, int64_t level, double *value, double *gradient,
                             double *hessian)
{
    if (rows->d == 2 && !hessian && !rows->weights) {
        add_two_columns(rows, all, level, value, gradient);
        return;
    }
    terms(rows, all, level, hessian != NULL);
    value[level] += rows->weights ? dot(rows->rho, rows->weights, rows->n) : sum_of(rows->rho, rows->n);
    weigh(rows, rows->psi);
    if (hessian)
        weigh(rows, rows->slope);
    add_products(rows, all->count, level, gradient, hessian);
}

/* The upper triangles of symmetric matrices from the lower ones. */
static inline void mirror(double *hessian, int64_t d, int64_t count)
{
    for (int64_t a = 0; a < d; a++)
        for (int64_t b = 0; b < a; b++)
            memcpy(hessian + (b * d + a) * count, hessian + (a * d + b) * count, (size_t)count * sizeof *hessian);
}

#endif
