/* Weighted normal equations of all levels of truncation, for Python. */
#include "weighted_equations.h"

/* x of every level (first axis) with Ax = b, to within its share `tolerance` of b, in up to so many steps. */
EXPORT int conjugate_gradients(const double *X, int64_t n, int64_t d, const double *weights, const double *ridge,
                               int64_t count, const double *b, const double *inverse, const double *constant,
                               double total, double damping, const double *tolerance, int64_t steps, double *x)
{
    table all = {X, inverse, constant, n, d, total, damping};
    level *levels = malloc((size_t)count * sizeof *levels), **moving = malloc((size_t)count * sizeof *moving);
    double *memory = malloc((size_t)(4 * count * d) * sizeof *memory);
    if (levels == NULL || moving == NULL || memory == NULL) {
        free(levels);
        free(moving);
        free(memory);
        return NO_MEMORY;
    }
    for (int64_t m = 0; m < count; m++)
        levels[m] = start(&all, weights + m * n, ridge[m], b + m * d, tolerance[m], memory + 4 * m * d);
    solve(&all, levels, count, steps, moving);
    for (int64_t m = 0; m < count; m++)
        memcpy(x + m * d, levels[m].x, (size_t)d * sizeof *x);
    free(levels);
    free(moving);
    free(memory);
    return DONE;
}
