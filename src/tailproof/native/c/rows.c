/* Products and sums over some rows of a matrix, without a copy of them. */
#include "common.h"

#define TEMPLATE "rows.inc"
#include "each_real.h"
