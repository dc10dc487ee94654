/* Partial derivatives of the losses of rows. */
#include "common.h"

#define LINE 8 /* rows at a time: they fill a line of memory of each column */

/* slope × scaled feature of columns first .. first + width − 1, one row of partials for each column. */
EXPORT int partials(const double *X, int64_t n, int64_t d, const double *slopes, const double *centre,
                    const double *inverse_scale, int64_t first, int64_t width, double *RESTRICT partials)
{
    for (int64_t start = 0; start < n; start += LINE) {
        int64_t stop = shorter(start + LINE, n);
        for (int64_t j = 0; j < width; j++) {
            double middle = centre[first + j], inverse = inverse_scale[first + j];
            for (int64_t i = start; i < stop; i++)
                partials[j * n + i] = slopes[i] * (X[i * d + first + j] - middle) * inverse;
        }
    }
    return DONE;
}
