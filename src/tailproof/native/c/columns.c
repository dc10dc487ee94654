/* Products of arrays of few columns that are stored column by column: libraries of linear algebra are made for larger
   matrices, and weights cost them an array of their own. */
#include "tile_products.h"

/* Room for a tile of columns, rounded up to fours, and for a square matrix; all zero. */
typedef struct {
    int64_t width;
    double *tile, *square;
} room;

static bool make_room(room *made, int64_t count)
{
    int64_t width = (count + 3) / 4 * 4;
    double *numbers = calloc((size_t)(TILE * width + width * width), sizeof *numbers);
    *made = (room){width, numbers, numbers + TILE * width};
    return numbers != NULL;
}

/* Some rows of the columns from one on, with zeros for those that are not there. */
static void take_tile(const double *columns, int64_t n, int64_t from, int64_t count, int64_t start, int64_t some,
                      double *tile)
{
    for (int64_t j = from; j < count; j++) {
        memcpy(tile + j * TILE, columns + j * n + start, (size_t)some * sizeof *tile);
        if (some < TILE)
            memset(tile + j * TILE + some, 0, (size_t)(TILE - some) * sizeof *tile);
    }
}

/* Two columns, `apart` numbers from each other, times weights. */
static void weigh_two(const double *RESTRICT columns, int64_t apart, const double *RESTRICT weights,
                      double *RESTRICT two)
{
    INDEPENDENT
    for (int64_t i = 0; i < TILE; i++) {
        two[i] = weights[i] * columns[i];
        two[TILE + i] = weights[i] * columns[apart + i];
    }
}

/* Σ wab of every two of `count` columns, or Σ ab without weights. Columns of a whole tile are read where they are, but for
   the last few, which have columns of zeros beside them. */
EXPORT int column_products(const double *columns, int64_t n, int64_t count, const double *weights, double *products)
{
    room at;
    double shares[TILE];
    if (!make_room(&at, count))
        return NO_MEMORY;
    for (int64_t i = 0; i < TILE; i++)
        shares[i] = 1.0;
    for (int64_t start = 0; start < n; start += TILE) {
        int64_t some = shorter(TILE, n - start), there = some < TILE ? 0 : count / 4 * 4;
        double two[2 * TILE];
        take_tile(columns, n, there, count, start, some, at.tile);
        if (weights)
            memcpy(shares, weights + start, (size_t)some * sizeof *shares);
        for (int64_t a = 0; a < count; a += 2) {
            bool near = a < there;
            weigh_two(near ? columns + a * n + start : at.tile + a * TILE, near ? n : TILE, shares, two);
            for (int64_t b = 0; b <= a; b += 4) {
                near = b < there;
                add_eight(two, near ? columns + b * n + start : at.tile + b * TILE, near ? n : TILE,
                          at.square + a * at.width + b, at.width);
            }
        }
    }
    for (int64_t a = 0; a < count; a++)
        for (int64_t b = 0; b <= a; b++)
            products[a * count + b] = products[b * count + a] = at.square[a * at.width + b];
    free(at.tile);
    return DONE;
}

/* The matrix above its diagonal, with what is below added to it, in rows of `width`. */
static void take_upper(const double *matrix, int64_t count, int64_t width, double *upper)
{
    for (int64_t a = 0; a < count; a++) {
        upper[a * width + a] = matrix[a * count + a];
        for (int64_t b = a + 1; b < count; b++)
            upper[a * width + b] = matrix[a * count + b] + matrix[b * count + a];
    }
}

/* x' matrix x of some rows, WIDE of them side by side, given the matrix above its diagonal. */
static void add_lengths(const double *tile, int64_t count, int64_t width, const double *upper, double *lengths)
{
    for (int64_t i = 0; i < TILE; i += WIDE) {
        wide sum = {0};
        for (int64_t b = 0; b < count; b += 4) {
            wide mapped[4] = {{0}};
            for (int64_t a = 0; a < shorter(b + 4, count); a++)
                for (int64_t k = 0; k < 4; k++)
                    mapped[k] += upper[a * width + b + k] * load_wide(tile + a * TILE + i);
            for (int64_t k = 0; k < 4; k++)
                sum += mapped[k] * load_wide(tile + (b + k) * TILE + i);
        }
        memcpy(lengths + i, &sum, sizeof sum);
    }
}

/* x' matrix x of every row x. */
EXPORT int column_lengths(const double *columns, int64_t n, int64_t count, const double *matrix, double *lengths)
{
    room at;
    if (!make_room(&at, count))
        return NO_MEMORY;
    take_upper(matrix, count, at.width, at.square);
    for (int64_t start = 0; start < n; start += TILE) {
        int64_t some = shorter(TILE, n - start);
        double found[TILE];
        take_tile(columns, n, 0, count, start, some, at.tile);
        add_lengths(at.tile, count, at.width, at.square, found);
        memcpy(lengths + start, found, (size_t)some * sizeof *found);
    }
    free(at.tile);
    return DONE;
}

/* y less some rows times a place, and the sums of what is left of these rows, truncated, times shares and columns. */
static void add_pulls(const double *tile, int64_t count, const double *y, const double *v, double tau,
                      const double *place, double *RESTRICT u, double *sums)
{
    double pull[TILE];
    for (int64_t i = 0; i < TILE; i += WIDE) {
        wide rest = load_wide(y + i);
        for (int64_t j = 0; j < count; j++)
            rest -= place[j] * load_wide(tile + j * TILE + i);
        memcpy(u + i, &rest, sizeof rest);
    }
    INDEPENDENT
    for (int64_t i = 0; i < TILE; i++)
        pull[i] = v[i] * clip(u[i], -tau, tau);
    for (int64_t j = 0; j < count; j += 4) {
        double found[4];
        four_products(pull, tile + j * TILE, TILE, found);
        for (int64_t k = 0; k < 4; k++)
            sums[j + k] += found[k];
    }
}

/* Steps H⁻¹ Σ vψ(u)x from a place, given the inverse; u = y − x'place where they lead. */
EXPORT int huber_steps(const double *columns, int64_t n, int64_t count, const double *y, const double *v, double tau,
                       const double *inverse, int64_t steps, double *place, double *u)
{
    room at;
    if (!make_room(&at, count))
        return NO_MEMORY;
    for (int64_t done = 0; done <= steps; done++) {
        double *sums = at.square, targets[TILE], shares[TILE], rest[TILE];
        memset(sums, 0, (size_t)at.width * sizeof *sums);
        for (int64_t start = 0; start < n; start += TILE) {
            int64_t some = shorter(TILE, n - start);
            take_tile(columns, n, 0, count, start, some, at.tile);
            take_tile(y, n, 0, 1, start, some, targets);
            take_tile(v, n, 0, 1, start, some, shares);
            add_pulls(at.tile, count, targets, shares, tau, place, rest, sums);
            memcpy(u + start, rest, (size_t)some * sizeof *u);
        }
        for (int64_t a = 0; a < count && done < steps; a++)
            for (int64_t b = 0; b < count; b++)
                place[a] += inverse[a * count + b] * sums[b];
    }
    free(at.tile);
    return DONE;
}
