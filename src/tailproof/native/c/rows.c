/* Products, sums and extremes over rows of a matrix, without a copy of them. */
#include "lanes.h"

#define AHEAD 8    /* rows ahead of the current ones that are fetched from memory */
#define FETCHED 64 /* columns of them */
#define TOGETHER 128 /* numbers that are looked at at once, since most often none of them is outside */

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

/* The least and the largest of n numbers, and Σ x², in one reading; all NaN where one of the numbers is. */
EXPORT int ends_and_square(const double *x, int64_t n, double *found)
{
    lanes none = {0.0}, low = none + INFINITY, high = none - INFINITY, square = none, more = none;
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) { /* sums of one do not wait for those of the other */
        lanes a = load_f64(x + i), b = load_f64(x + i + WIDTH);
        low = smaller_lanes(a, smaller_lanes(b, low));
        high = larger_lanes(a, larger_lanes(b, high));
        square += a * a;
        more += b * b;
    }
    found[0] = -largest_of(-low);
    found[1] = largest_of(high);
    found[2] = sum_of(square + more);
    for (; i < n; i++) {
        found[0] = at_most(found[0], x[i]);
        found[1] = larger(x[i], found[1]);
        found[2] += x[i] * x[i];
    }
    if (found[2] != found[2])
        found[0] = found[1] = found[2];
    return DONE;
}

/* Places of the numbers that do not lie between two, NaN among them, in order; how many there are. */
EXPORT int64_t places_outside(const double *x, int64_t n, double low, double high, int64_t *RESTRICT places)
{
    int64_t found = 0;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t stop = shorter(start + TOGETHER, n);
        double outside = 0.0; /* their number, of the type that is compared: the loop vectorises */
        SUM(outside)
        for (int64_t i = start; i < stop; i++)
            outside += (x[i] >= low) & (x[i] <= high) ? 0.0 : 1.0;
        for (int64_t i = start; i < stop && outside > 0.0; i++) {
            places[found] = i; /* which the next takes over if it is inside: a branch would be guessed wrong */
            found += !((x[i] >= low) & (x[i] <= high));
        }
    }
    return found;
}

#define TEMPLATE "rows.inc"
#include "each_real.h"
#define TEMPLATE "rows_csr.inc"
#include "each_csr.h"
