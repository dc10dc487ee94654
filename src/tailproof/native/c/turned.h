/* Some rows at a time with the numbers of a column side by side. */
#ifndef TAILPROOF_TURNED_H
#define TAILPROOF_TURNED_H

#include "lanes.h"

#define TOGETHER 16 /* rows that are taken together */
#define GROUPS (TOGETHER / WIDTH)

/* Columns of some rows, one after the other; zero for rows that are not there. */
static void turn(const double *RESTRICT Z, int64_t n, int64_t width, double *RESTRICT z)
{
    int64_t squares = n < TOGETHER ? 0 : width / WIDTH * WIDTH;
    if (n < TOGETHER)
        memset(z, 0, (size_t)(TOGETHER * width) * sizeof *z);
    turn_squares(Z, width, TOGETHER, squares, z, TOGETHER);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = squares; j < width; j++)
            z[TOGETHER * j + i] = Z[i * width + j];
}

/* y − z'slopes of some rows, which stay in registers. */
static void take_residuals(const double *z, int64_t width, const double *slopes, const double *y, double *into)
{
    lanes rest[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        rest[g] = load_f64(y + g * WIDTH);
    for (int64_t j = 0; j < width; j++)
        for (int g = 0; g < GROUPS; g++)
            rest[g] -= load_f64(z + TOGETHER * j + g * WIDTH) * slopes[j];
    for (int g = 0; g < GROUPS; g++)
        store(into + g * WIDTH, rest[g]);
}

/* Σ of products of some rows. */
static inline double product(const double *RESTRICT a, const double *RESTRICT b)
{
    double sum = 0.0;
    SUM(sum)
    for (int i = 0; i < TOGETHER; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Add Σ by·z of every column, WIDTH sums side by side. */
static void add_columns(const double *by, const double *z, int64_t width, double *into)
{
    lanes factors[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        factors[g] = load_f64(by + g * WIDTH);
    for (int64_t j = 0; j < width; j++) {
        lanes sum = load_f64(into + j * WIDTH);
        for (int g = 0; g < GROUPS; g++)
            sum += load_f64(z + TOGETHER * j + g * WIDTH) * factors[g];
        store(into + j * WIDTH, sum);
    }
}

#endif
