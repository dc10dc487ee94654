/* Slopes φ and κ by reweighted steps, where noise over its size is truncated at a quantile. */
#ifndef TAILPROOF_REWEIGHTED_H
#define TAILPROOF_REWEIGHTED_H

#include "factors.h"
#include "order.h"
#include "tile_products.h"

#define TINY 1e-300
#define REGULAR 1e-10 /* of the largest pivot: a smaller one leaves the system to the caller */

/* Rows over their sizes, a one beside each, and what is left of them; a few more columns of zeros round this off. */
typedef struct {
    int64_t n, tiles, count, width; /* `count` unknowns, of `width` columns a tile; the last in use is u */
    double *columns;                /* TILE numbers each, tile by tile */
    double *weighted;               /* of one tile */
    double *y, *v, *away;           /* targets over sizes, shares, and |u| */
    double share;                   /* Σ v */
    double *products, *plain;       /* Σ wab of two columns, and Σ va */
} sized;

/* Room for n rows of so many unknowns; false where there is none. All of it is at `columns`, and zero. */
static bool make_room(sized *rows, int64_t n, int64_t count)
{
    int64_t tiles = (n + TILE - 1) / TILE, width = (count + 4) / 4 * 4, padded = tiles * TILE;
    double *room = calloc((size_t)(padded * (width + 3) + TILE * width + width * width + count), sizeof *room);
    double *weighted = room + padded * width, *y = weighted + TILE * width, *products = y + 3 * padded;
    if (!room)
        return false;
    *rows = (sized){n, tiles, count, width, room, weighted, y, y + padded, y + 2 * padded, 0.0, products,
                    products + width * width};
    return true;
}

static double *column_of(const sized *rows, int64_t tile, int64_t j)
{
    return rows->columns + (tile * rows->width + j) * TILE;
}

/* Write numbers of a column times inverse sizes down, and return the sum of that times shares. */
static double over_sizes(const double *RESTRICT from, const double *RESTRICT inverse, const double *RESTRICT v, int64_t n,
                         double *RESTRICT column)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++) {
        column[i] = from[i] * inverse[i];
        sum += v[i] * column[i];
    }
    return sum;
}

/* Write rows over their sizes down, given their columns; others may have been there before. */
static void take_rows(sized *rows, const double *Q, const double *y, const double *v, const double *s)
{
    int64_t rank = rows->count - 1;
    rows->share = 0.0;
    memset(rows->plain, 0, (size_t)rows->count * sizeof *rows->plain);
    for (int64_t start = 0; start < rows->n; start += TILE) {
        int64_t n = shorter(TILE, rows->n - start);
        double *columns = column_of(rows, start / TILE, 0), inverse[TILE];
        for (int64_t i = 0; i < n; i++) {
            columns[rank * TILE + i] = 1.0;
            inverse[i] = 1.0 / s[start + i];
            rows->y[start + i] = y[start + i] * inverse[i];
            rows->v[start + i] = v[start + i];
            rows->share += v[start + i];
        }
        for (int64_t j = 0; j < rank; j++)
            rows->plain[j] += over_sizes(Q + j * rows->n + start, inverse, v + start, n, columns + j * TILE);
    }
}

/* u at a place, and |u|; whether all are finite. */
static bool find_rest(sized *rows, const double *place)
{
    int64_t strange = 0;
    for (int64_t tile = 0; tile < rows->tiles; tile++) {
        double *RESTRICT u = column_of(rows, tile, rows->count), *RESTRICT away = rows->away + tile * TILE;
        memcpy(u, rows->y + tile * TILE, TILE * sizeof *u);
        for (int64_t j = 0; j < rows->count; j++) {
            const double *RESTRICT a = column_of(rows, tile, j);
            INDEPENDENT
            for (int64_t i = 0; i < TILE; i++)
                u[i] -= place[j] * a[i];
        }
        SUM(strange)
        for (int64_t i = 0; i < TILE; i++) {
            away[i] = fabs(u[i]);
            strange += !(away[i] < INFINITY);
        }
    }
    return strange == 0;
}

/* A quantile with linear interpolation; reorders the numbers. */
static double quantile(double *x, int64_t n, double share)
{
    double place = share * (double)(n - 1), after = INFINITY;
    int64_t below = (int64_t)place;
    put_in_place(x, n, below);
    if (!(place > (double)below))
        return x[below];
    for (int64_t i = below + 1; i < n; i++)
        after = x[i] < after ? x[i] : after;
    return x[below] + (place - (double)below) * (after - x[below]);
}

/* Huber's weights of a tile, times shares. */
static void weigh_tile(const sized *rows, int64_t tile, double tau, double *weights)
{
    const double *u = column_of(rows, tile, rows->count);
    for (int64_t i = 0; i < TILE; i++)
        weights[i] = rows->v[tile * TILE + i] * at_most(tau / larger(fabs(u[i]), TINY), 1.0);
}

/* Σ wab of all columns and those up to them, with Huber's weights. */
static void add_products(sized *rows, double tau)
{
    memset(rows->products, 0, (size_t)(rows->width * rows->width) * sizeof *rows->products);
    for (int64_t tile = 0; tile < rows->tiles; tile++) {
        const double *columns = column_of(rows, tile, 0);
        double weights[TILE];
        weigh_tile(rows, tile, tau, weights);
        for (int64_t j = 0; j <= rows->count; j++)
            INDEPENDENT
            for (int64_t i = 0; i < TILE; i++)
                rows->weighted[j * TILE + i] = weights[i] * columns[j * TILE + i];
        for (int64_t a = 0; a <= rows->count; a += 2)
            for (int64_t b = 0; b <= a; b += 4)
                add_eight(rows->weighted + a * TILE, columns + b * TILE, TILE, rows->products + a * rows->width + b,
                          rows->width);
    }
}

/* Σ xy. */
static double dot(const double *RESTRICT x, const double *RESTRICT y, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Σ v(u + κ). */
static double sum_of_noise(const sized *rows, const double *place)
{
    double sum = place[rows->count - 1] * rows->share;
    for (int64_t tile = 0; tile < rows->tiles; tile++)
        sum += dot(rows->v + tile * TILE, column_of(rows, tile, rows->count), TILE);
    return sum;
}

/* The right side of a step: Σ wua of the columns but κ's, and Σ v(u + κ). */
static void write_side(const sized *rows, double tau, const double *place, double *side)
{
    int64_t kappa = rows->count - 1;
    memset(side, 0, (size_t)rows->count * sizeof *side);
    for (int64_t tile = 0; tile < rows->tiles; tile++) {
        const double *u = column_of(rows, tile, rows->count);
        double weights[TILE];
        weigh_tile(rows, tile, tau, weights);
        for (int64_t i = 0; i < TILE; i++)
            weights[i] *= u[i];
        for (int64_t j = 0; j < kappa; j++)
            side[j] += dot(weights, column_of(rows, tile, j), TILE);
    }
    side[kappa] = sum_of_noise(rows, place);
}

/* The system of a step, and its right side after the matrix. */
static void write_system(const sized *rows, const double *place, double *system)
{
    int64_t count = rows->count, kappa = count - 1;
    double *side = system + count * count, *matrix = system;
    for (int64_t a = 0; a < count; a++) {
        for (int64_t b = 0; b < a; b++)
            matrix[a * count + b] = matrix[b * count + a] = rows->products[a * rows->width + b];
        matrix[a * count + a] = rows->products[a * rows->width + a];
        side[a] = rows->products[count * rows->width + a];
    }
    memcpy(matrix + kappa * count, rows->plain, (size_t)kappa * sizeof *matrix);
    matrix[kappa * count + kappa] = 0.0;
    side[kappa] = sum_of_noise(rows, place);
}

/* Whether numbers are. */
static bool all_finite(const double *x, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        finite = finite && isfinite(x[i]);
    return finite;
}

/* The largest |x|. */
static double largest(const double *x, int64_t n, int64_t stride)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = larger(most, fabs(x[i * stride]));
    return most;
}

/* What a step takes: its system, which is the caller's, and room for the factors of that. */
typedef struct {
    double *system, *factors, *step;
    int64_t *pivots;
} workbench;

/* Factors of a system; false where it may be singular. */
static bool take_factors(const workbench *on, int64_t count)
{
    memcpy(on->factors, on->system, (size_t)(count * count) * sizeof *on->factors);
    if (!factorise(on->factors, on->pivots, count))
        return false;
    double least = REGULAR * largest(on->factors, count, count + 1);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(on->factors[i * (count + 1)]) > least))
            return false;
    return true;
}

/* One step, with a matrix of its own or the one before, and the truncation before it, which is NaN where numbers do
   not hold what is asked. */
static bool go(sized *rows, const workbench *on, double share, bool own, double *place, double *tau)
{
    int64_t count = rows->count;
    *tau = NAN;
    if (!find_rest(rows, place))
        return false;
    double found = quantile(rows->away, rows->n, share);
    if (own) {
        add_products(rows, found);
        write_system(rows, place, on->system);
    } else
        write_side(rows, found, place, on->system + count * count);
    if (!all_finite(on->system, count * (count + 1)))
        return false;
    *tau = found;
    if (own && !take_factors(on, count))
        return false;
    memcpy(on->step, on->system + count * count, (size_t)count * sizeof *on->step);
    solve(on->factors, on->pivots, count, on->step);
    for (int64_t j = 0; j < count; j++)
        place[j] += on->step[j];
    return true;
}

/* u of the rows at a place. */
static void write_rest(sized *rows, const double *place, double *u)
{
    find_rest(rows, place);
    for (int64_t i = 0; i < rows->n; i += TILE)
        memcpy(u + i, column_of(rows, i / TILE, rows->count), (size_t)shorter(TILE, rows->n - i) * sizeof *u);
}

/* Steps of rows from a place, as many as are `left`, and u where they lead. */
static void go_on(sized *rows, const workbench *on, double share, double close, int64_t every, double *place,
                  double *tau, int64_t *left, double *u)
{
    for (int64_t done = 0; *left > 0 && go(rows, on, share, done % every == 0, place, tau); done++)
        *left = largest(on->step, rows->count, 1) <= close * largest(place, rows->count, 1) ? 0 : *left - 1;
    write_rest(rows, place, u);
}

/* Room for the factors of systems of so many unknowns; false where there is none. The first of it is at `factors`. */
static bool make_bench(workbench *on, double *system, int64_t count)
{
    double *factors = malloc((size_t)(count * (count + 1)) * sizeof *factors + (size_t)count * sizeof(int64_t));
    double *step = factors ? factors + count * count : NULL;
    *on = (workbench){system, factors, step, factors ? (int64_t *)(step + count) : NULL};
    return factors != NULL;
}

#endif
