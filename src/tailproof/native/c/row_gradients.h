/* Partial derivatives of the losses of rows, for those who need a few columns at a time. */
#ifndef TAILPROOF_ROW_GRADIENTS_H
#define TAILPROOF_ROW_GRADIENTS_H

#include "common.h"

/* slope × scaled feature of columns first .. first + width − 1, one row of partials for each column. */
void fill_partials(const double *X, int64_t n, int64_t d, const double *slopes, const double *centre,
                   const double *inverse, int64_t first, int64_t width, double *RESTRICT partials);

#endif
