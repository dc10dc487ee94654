/* Products, sums and extremes over rows of a matrix, without a copy of them. */
#include "common.h"

#define AHEAD 8 /* rows ahead of the current one that is fetched from memory */

#define TEMPLATE "rows.inc"
#include "each_real.h"
#define TEMPLATE "rows_csr.inc"
#include "each_csr.h"
