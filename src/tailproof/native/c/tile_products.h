/* Sums of products of columns, a tile of rows at a time. */
#ifndef TAILPROOF_TILE_PRODUCTS_H
#define TAILPROOF_TILE_PRODUCTS_H

#include "lanes.h"

#define TILE 128 /* rows whose columns are together: a tile and its weighted copy stay near the processor */

/* Sums over a tile of the products of a column and four others. */
static inline void four_products(const double *one, const double *columns, double *found)
{
    lanes sums[4] = {{0}};
    for (int64_t i = 0; i < TILE; i += WIDTH)
        for (int64_t b = 0; b < 4; b++)
            sums[b] += load_f64(one + i) * load_f64(columns + b * TILE + i);
    sum_four(sums[0], sums[1], sums[2], sums[3], found);
}

/* Sums over a tile of the products of two weighted columns and four others. */
static inline void add_eight(const double *weighted, const double *columns, double *into, int64_t width)
{
    lanes first[4] = {{0}}, second[4] = {{0}};
    double found[8];
    for (int64_t i = 0; i < TILE; i += WIDTH)
        for (int64_t b = 0; b < 4; b++) {
            lanes column = load_f64(columns + b * TILE + i);
            first[b] += load_f64(weighted + i) * column;
            second[b] += load_f64(weighted + TILE + i) * column;
        }
    sum_four(first[0], first[1], first[2], first[3], found);
    sum_four(second[0], second[1], second[2], second[3], found + 4);
    for (int64_t b = 0; b < 4; b++) {
        into[b] += found[b];
        into[width + b] += found[4 + b];
    }
}

/* Add Σ wab of `count` columns and those up to them; there is room for fours of them, and a row of sums is `width`. */
static inline void add_tile_products(const double *weighted, const double *columns, int64_t count, int64_t width, double *sums)
{
    for (int64_t a = 0; a < count; a += 2)
        for (int64_t b = 0; b <= a; b += 4)
            add_eight(weighted + a * TILE, columns + b * TILE, sums + a * width + b, width);
}

#endif
