/* Products of arrays of few columns that are stored column by column: libraries of linear algebra are made for larger
   matrices, and weights cost them an array of their own. */
#include "tile_products.h"

/* Room for a tile of columns, rounded up to fours, for its weighted copy, and for a square matrix; all zero. */
typedef struct {
    int64_t width;
    double *tile, *weighted, *square;
} room;

static bool make_room(room *made, int64_t count)
{
    int64_t width = (count + 3) / 4 * 4;
    double *numbers = calloc((size_t)(2 * TILE * width + width * width), sizeof *numbers);
    *made = (room){width, numbers, numbers + TILE * width, numbers + 2 * TILE * width};
    return numbers != NULL;
}

/* Some rows of the columns, with zeros for those that are not there. */
static void take_tile(const double *columns, int64_t n, int64_t count, int64_t start, int64_t some, double *tile)
{
    for (int64_t j = 0; j < count; j++) {
        memcpy(tile + j * TILE, columns + j * n + start, (size_t)some * sizeof *tile);
        memset(tile + j * TILE + some, 0, (size_t)(TILE - some) * sizeof *tile);
    }
}

/* Some rows of the columns times weights. */
static void weigh_tile(const double *columns, const double *RESTRICT weights, int64_t n, int64_t count, int64_t start,
                       int64_t some, double *weighted)
{
    for (int64_t j = 0; j < count; j++) {
        const double *RESTRICT from = columns + j * n + start;
        double *RESTRICT to = weighted + j * TILE;
        INDEPENDENT
        for (int64_t i = 0; i < some; i++)
            to[i] = weights[start + i] * from[i];
        memset(to + some, 0, (size_t)(TILE - some) * sizeof *to);
    }
}

/* Σ wab of every two of `count` columns, or Σ ab without weights. */
EXPORT int column_products(const double *columns, int64_t n, int64_t count, const double *weights, double *products)
{
    room at;
    if (!make_room(&at, count))
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += TILE) {
        int64_t some = shorter(TILE, n - start);
        take_tile(columns, n, count, start, some, at.tile);
        if (weights)
            weigh_tile(columns, weights, n, count, start, some, at.weighted);
        add_tile_products(weights ? at.weighted : at.tile, at.tile, count, at.width, at.square);
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

/* x' matrix x of some rows, WIDTH of them side by side, given the matrix above its diagonal. */
static void add_lengths(const double *tile, int64_t count, int64_t width, const double *upper, double *lengths)
{
    for (int64_t i = 0; i < TILE; i += WIDTH) {
        lanes sum = {0};
        for (int64_t b = 0; b < count; b += 4) {
            lanes mapped[4] = {{0}};
            for (int64_t a = 0; a < shorter(b + 4, count); a++)
                for (int64_t k = 0; k < 4; k++)
                    mapped[k] += upper[a * width + b + k] * load_f64(tile + a * TILE + i);
            for (int64_t k = 0; k < 4; k++)
                sum += mapped[k] * load_f64(tile + (b + k) * TILE + i);
        }
        store(lengths + i, sum);
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
        take_tile(columns, n, count, start, some, at.tile);
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
    memcpy(u, y, TILE * sizeof *u);
    for (int64_t j = 0; j < count; j++)
        INDEPENDENT
        for (int64_t i = 0; i < TILE; i++)
            u[i] -= place[j] * tile[j * TILE + i];
    INDEPENDENT
    for (int64_t i = 0; i < TILE; i++)
        pull[i] = v[i] * clip(u[i], -tau, tau);
    for (int64_t j = 0; j < count; j += 4) {
        double found[4];
        four_products(pull, tile + j * TILE, found);
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
            take_tile(columns, n, count, start, some, at.tile);
            take_tile(y, n, 1, start, some, targets);
            take_tile(v, n, 1, start, some, shares);
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
