/* Partial derivatives of the losses of rows. */
#include "row_gradients.h"

#include "lanes.h"

#define AHEAD 20 /* rows: the line of one is asked for so long before it is needed */

/* slope × scaled feature of one row, `width` columns, into as many rows of partials. */
static void scatter_row(const double *x, double slope, const double *centre, const double *inverse, int64_t width,
                        int64_t n, double *partials)
{
    for (int64_t j = 0; j < width; j++)
        partials[j * n] = slope * (x[j] - centre[j]) * inverse[j];
}

#if WIDTH == 4

/* The same for four rows and four columns, turned in registers. */
static inline void scatter_square(const double *x, int64_t d, const double *slopes, lanes centre, lanes inverse,
                                  int64_t n, double *partials)
{
    lanes a = slopes[0] * (load_f64(x) - centre) * inverse;
    lanes b = slopes[1] * (load_f64(x + d) - centre) * inverse;
    lanes c = slopes[2] * (load_f64(x + 2 * d) - centre) * inverse;
    lanes e = slopes[3] * (load_f64(x + 3 * d) - centre) * inverse;
    store(partials, (lanes){a[0], b[0], c[0], e[0]});
    store(partials + n, (lanes){a[1], b[1], c[1], e[1]});
    store(partials + 2 * n, (lanes){a[2], b[2], c[2], e[2]});
    store(partials + 3 * n, (lanes){a[3], b[3], c[3], e[3]});
}

#endif

/* slope · (x − centre)/scale of `width` columns from the first on: a row a column. */
void fill_partials(const double *X, int64_t n, int64_t d, const double *slopes, const double *centre,
                   const double *inverse, int64_t first, int64_t width, double *RESTRICT partials)
{
    int64_t row = 0, squares = width / 4 * 4;
    X += first, centre += first, inverse += first;
#if WIDTH == 4
    for (; row + 4 <= n; row += 4) {
        for (int64_t later = row + AHEAD; later < shorter(row + AHEAD + 4, n); later++)
            for (int64_t j = 0; j < width; j += 8)
                PREFETCH(X + later * d + j);
        for (int64_t j = 0; j < squares; j += 4)
            scatter_square(X + row * d + j, d, slopes + row, load_f64(centre + j), load_f64(inverse + j), n,
                           partials + j * n + row);
        for (int64_t i = row; i < row + 4 && squares < width; i++)
            scatter_row(X + i * d + squares, slopes[i], centre + squares, inverse + squares, width - squares, n,
                        partials + squares * n + i);
    }
#endif
    for (; row < n; row++)
        scatter_row(X + row * d, slopes[row], centre, inverse, width, n, partials + row);
}

/* The same, as Python calls it. */
EXPORT int partials(const double *X, int64_t n, int64_t d, const double *slopes, const double *centre,
                    const double *inverse_scale, int64_t first, int64_t width, double *partials)
{
    fill_partials(X, n, d, slopes, centre, inverse_scale, first, width, partials);
    return DONE;
}
