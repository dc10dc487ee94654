/* Sums of products of columns, a tile of rows at a time. */
#ifndef TAILPROOF_TILE_PRODUCTS_H
#define TAILPROOF_TILE_PRODUCTS_H

#include "lanes.h"

#define TILE 128 /* rows whose columns are together: a tile and its weighted copy stay near the processor */

/* As many numbers as one register holds. */
#ifdef __AVX512F__
#define WIDE TWICE
typedef twice wide;
static inline wide load_wide(const double *x) { return load_twice(x); }
static inline lanes narrowed(wide x) { return folded(x); }
#else
#define WIDE WIDTH
typedef lanes wide;
static inline wide load_wide(const double *x) { return load_f64(x); }
static inline lanes narrowed(wide x) { return x; }
#endif

/* Sums over a tile of the products of a column and four others, which are so many numbers apart. */
static inline void four_products(const double *one, const double *columns, int64_t apart, double *found)
{
    wide sums[4] = {{0}};
    for (int64_t i = 0; i < TILE; i += WIDE)
        for (int64_t b = 0; b < 4; b++)
            sums[b] += load_wide(one + i) * load_wide(columns + b * apart + i);
    sum_four(narrowed(sums[0]), narrowed(sums[1]), narrowed(sums[2]), narrowed(sums[3]), found);
}

/* The same of two columns, one after the other. */
static inline void eight_products(const double *two, const double *columns, int64_t apart, double *found)
{
    wide first[4] = {{0}}, second[4] = {{0}};
    for (int64_t i = 0; i < TILE; i += WIDE)
        for (int64_t b = 0; b < 4; b++) {
            wide column = load_wide(columns + b * apart + i);
            first[b] += load_wide(two + i) * column;
            second[b] += load_wide(two + TILE + i) * column;
        }
    sum_four(narrowed(first[0]), narrowed(first[1]), narrowed(first[2]), narrowed(first[3]), found);
    sum_four(narrowed(second[0]), narrowed(second[1]), narrowed(second[2]), narrowed(second[3]), found + 4);
}

/* Add Σ wab of two weighted columns and four others, to rows of `width` sums. */
static inline void add_eight(const double *two, const double *columns, int64_t apart, double *sums, int64_t width)
{
    double found[8];
    eight_products(two, columns, apart, found);
    for (int64_t k = 0; k < 4; k++) {
        sums[k] += found[k];
        sums[width + k] += found[4 + k];
    }
}

#endif
