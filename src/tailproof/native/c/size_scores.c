/* Sums over rows that slopes need where the noise is s(x) times one law: one reading of scaled rows. */
#include "sized_rows.h"

/* s(x) of rows. */
EXPORT int sizes_of_rows(const double *Z, int64_t n, int64_t width, const struct size_model *model,
                         double *RESTRICT sizes)
{
    double *z = malloc((size_t)(TOGETHER * (width + features_of(model))) * sizeof *z), some[TOGETHER];
    if (z == NULL)
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t count = shorter(TOGETHER, n - start);
        turn(Z + start * width, count, width, z);
        look_at_sizes(model, z, z + TOGETHER * width, some);
        memcpy(sizes + start, some, (size_t)count * sizeof *some);
    }
    free(z);
    return DONE;
}

/* Square norms of z/s, 1 and f times a matrix, of every row. */
EXPORT int lengths_of_rows(const double *Z, int64_t n, int64_t width, const struct size_model *model,
                           const double *matrix, int64_t padded, double *RESTRICT lengths)
{
    int64_t m = features_of(model), count = width + 1 + m;
    double *z = malloc((size_t)(TOGETHER * (width + count)) * sizeof *z), some[TOGETHER];
    if (z == NULL)
        return NO_MEMORY;
    double *factors = z + TOGETHER * width, *ones = factors + TOGETHER * width;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t here = shorter(TOGETHER, n - start);
        turn(Z + start * width, here, width, z);
        look_at_sizes(model, z, ones + TOGETHER, some);
        for (int i = 0; i < TOGETHER; i++) {
            ones[i] = 1.0;
            some[i] = 1.0 / some[i];
        }
        write_products(z, width, some, factors);
        take_lengths(factors, count, matrix, padded, some);
        memcpy(lengths + start, some, (size_t)here * sizeof *some);
    }
    free(z);
    return DONE;
}

/* Add Σ v pull z, Σ v(u + κ), Σ v tall f, Σ v, Σ v², and, unless there is no matrix, the squares of what rows move
   slopes by, in sums of as many columns as the matrix has with its padding. */
EXPORT int size_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v,
                     const struct size_model *model, const struct slopes *slopes, double *sums)
{
    int64_t m = features_of(model);
    double *z = malloc((size_t)room(width, m) * sizeof *z);
    if (z == NULL)
        return NO_MEMORY;
    struct sums into = sums_in(sums, width, m, z + room(width, m) - WIDTH * width);
    for (int64_t start = 0; start < n; start += TOGETHER) {
        size_t here = (size_t)shorter(TOGETHER, n - start) * sizeof *v;
        struct some_rows rows = {.weight = {0.0}, .simple = {0.0}};
        memcpy(rows.weight, v + start, here);
        memcpy(rows.simple, y + start, here);
        turn(Z + start * width, shorter(TOGETHER, n - start), width, z);
        add_some(model, slopes, width, z, &rows, &into);
    }
    finish(&into, width);
    free(z);
    return DONE;
}

/* Add Σ vψz/s and Σ vψ. */
EXPORT int sized_score_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v,
                            const double *sizes, const struct score *score, double *sums)
{
    double *z = malloc((size_t)((TOGETHER + WIDTH) * width) * sizeof *z);
    if (z == NULL)
        return NO_MEMORY;
    struct sums into = {.pulls = sums, .beside = z + TOGETHER * width};
    memset(into.beside, 0, (size_t)(WIDTH * width) * sizeof *z);
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t here = shorter(TOGETHER, n - start);
        double targets[TOGETHER] = {0.0}, weights[TOGETHER] = {0.0}, some[TOGETHER], u[TOGETHER], psi[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            some[i] = 1.0;
        memcpy(targets, y + start, (size_t)here * sizeof *y);
        memcpy(weights, v + start, (size_t)here * sizeof *v);
        memcpy(some, sizes + start, (size_t)here * sizeof *sizes);
        turn(Z + start * width, here, width, z);
        look_at_scores(score, z, width, targets, some, u, psi);
        sums[width] += add_scores(psi, z, width, weights, some, into.beside);
    }
    finish(&into, width);
    free(z);
    return DONE;
}
