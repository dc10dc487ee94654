/* Products, sums and extremes over rows of a matrix, without a copy of them. */
#include "lanes.h"

#define AHEAD 8    /* rows ahead of the current ones that are fetched from memory */
#define FETCHED 64 /* columns of them */
#define LINE 64    /* bytes that are fetched together */

/* Number of the t-th row: as it is listed, or t. */
static inline int64_t row_at(const int64_t *rows, int64_t t) { return rows ? rows[t] : t; }

#define TEMPLATE "rows.inc"
#include "each_real.h"
#define TEMPLATE "rows_csr.inc"
#include "each_csr.h"
