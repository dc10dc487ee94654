/* Products, sums and extremes over rows of a matrix, without a copy of them. */
#include "lanes.h"

#define AHEAD 8    /* rows ahead of the current ones that are fetched from memory */
#define FETCHED 64 /* columns of them */

/* Number of the t-th row: as it is listed, or t. */
static inline int64_t row_at(const int64_t *rows, int64_t t) { return rows ? rows[t] : t; }

/* Runs of `length` neighbouring rows, each from its start on, one after another. */
EXPORT int rows_of_runs(const int64_t *RESTRICT starts, int64_t runs, int64_t length, int64_t *RESTRICT rows)
{
    for (int64_t r = 0; r < runs; r++, rows += length) {
        INDEPENDENT
        for (int64_t i = 0; i < length; i++)
            rows[i] = starts[r] + i;
    }
    return DONE;
}

#define TEMPLATE "rows.inc"
#include "each_real.h"
#define TEMPLATE "rows_csr.inc"
#include "each_csr.h"
