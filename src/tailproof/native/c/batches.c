/* Columns to rows. */
#include "common.h"

#define TILE 256 /* rows that are filled together: their lines stay in the fast cache */

/* Write d columns of n numbers into the rows of X; good becomes false for rows that are not finite. */
EXPORT int fill_rows(const double *const *columns, int64_t n, int64_t d, double *RESTRICT X, bool *good)
{
    for (int64_t start = 0; start < n; start += TILE) {
        int64_t stop = shorter(start + TILE, n);
        double spoiled = 0.0; /* NaN as soon as one number is not finite */
        for (int64_t j = 0; j < d; j++) {
            const double *column = columns[j];
            SUM(spoiled)
            for (int64_t i = start; i < stop; i++) {
                X[i * d + j] = column[i];
                spoiled += column[i] * 0.0;
            }
        }
        for (int64_t i = start; i < (spoiled != 0.0 ? stop : start); i++)
            for (int64_t j = 0; j < d; j++)
                good[i] = good[i] && isfinite(X[i * d + j]);
    }
    return DONE;
}
