/* Sums over rows of the derivatives of scores by what the scores depend on, some rows at a time. */
#ifndef TAILPROOF_SIZE_DERIVATIVES_H
#define TAILPROOF_SIZE_DERIVATIVES_H

#include "turned.h"

/* Some rows: z/s, `width` of them, 1, and f, `m` of them, column by column; weights times what is named. Of the fit by
   size: ψ′, ψ′(u + κ) + ψ, l = sign(u)/(|u| + c), l(u + κ), 1 and u + κ. Of a law: the first two, and ψ′(u + κ). */
struct steepness {
    double inside[TOGETHER], wider[TOGETHER], tall[TOGETHER], taller[TOGETHER], one[TOGETHER], size[TOGETHER];
};

/* Numbers below the diagonal of a square, and on it. */
static int64_t triangle(int64_t side) { return side * (side + 1) / 2; }

/* Add Σ by·fa' of m columns f and of `count` others, each sum WIDTH times side by side. */
static void add_rectangle(const double *by, const double *f, int64_t m, const double *columns, int64_t count,
                          double *sums)
{
    for (int64_t l = 0; l < m; l++) {
        double weighted[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            weighted[i] = by[i] * f[TOGETHER * l + i];
        add_columns(weighted, columns, count, sums + WIDTH * l * count);
    }
}

/* Add Σ by·ca' of two columns c and the first ones a, which are read once for both. */
static void add_two(const double *by, const double *RESTRICT two, const double *RESTRICT columns, int64_t count,
                    double *RESTRICT first, double *RESTRICT second)
{
    lanes a[GROUPS], b[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        lanes weight = load_f64(by + g * WIDTH);
        a[g] = weight * load_f64(two + g * WIDTH), b[g] = weight * load_f64(two + TOGETHER + g * WIDTH);
    }
    for (int64_t k = 0; k < count; k++) {
        lanes here = load_f64(first + k * WIDTH), there = load_f64(second + k * WIDTH);
        for (int g = 0; g < GROUPS; g++) {
            lanes column = load_f64(columns + TOGETHER * k + g * WIDTH);
            here += column * a[g], there += column * b[g];
        }
        store(first + k * WIDTH, here), store(second + k * WIDTH, there);
    }
}

/* Add Σ by·aa' of the first columns. */
static void add_triangle(const double *by, const double *columns, int64_t count, double *sums)
{
    for (int64_t j = 0; j < count; j += 2) {
        const double *two = columns + TOGETHER * j;
        double *first = sums + WIDTH * triangle(j), *second = sums + WIDTH * triangle(j + 1);
        if (j + 1 == count)
            add_rectangle(by, two, 1, columns, count, first);
        else {
            add_two(by, two, columns, j + 1, first, second);
            add_rectangle(by, two + TOGETHER, 1, two + TOGETHER, 1, second + WIDTH * (j + 1));
        }
    }
}

/* Sums that the next two functions add to, in their order. */
static int64_t derivatives_of_size(int64_t width, int64_t m)
{
    return triangle(width + 1) + m * (2 * width + 1) + m * m + width + m;
}

static int64_t derivatives_of_law(int64_t width, int64_t m) { return triangle(width + 1) + m * width + m; }

/* Add derivatives of the conditions of a fit by size. */
static void add_size_derivatives(const struct steepness *by, const double *columns, int64_t width, int64_t m,
                                 double *sums)
{
    const double *f = columns + TOGETHER * (width + 1);
    add_triangle(by->inside, columns, width + 1, sums), sums += WIDTH * triangle(width + 1);
    add_rectangle(by->wider, f, m, columns, width, sums), sums += WIDTH * m * width;
    add_rectangle(by->tall, f, m, columns, width + 1, sums), sums += WIDTH * m * (width + 1);
    add_rectangle(by->taller, f, m, f, m, sums), sums += WIDTH * m * m;
    add_columns(by->one, columns, width, sums);
    add_columns(by->size, f, m, sums + WIDTH * width);
}

/* Add those of the conditions of a law, given ψ′(u + κ) in place of u + κ. */
static void add_law_derivatives(const struct steepness *by, const double *columns, int64_t width, int64_t m,
                                double *sums)
{
    const double *f = columns + TOGETHER * (width + 1);
    add_triangle(by->inside, columns, width + 1, sums), sums += WIDTH * triangle(width + 1);
    add_rectangle(by->wider, f, m, columns, width, sums), sums += WIDTH * m * width;
    add_columns(by->size, f, m, sums);
}

#endif
