/* Weighted normal equations of levels of truncation by conjugate gradients: Hessians are applied, never formed. */
#ifndef TAILPROOF_WEIGHTED_EQUATIONS_H
#define TAILPROOF_WEIGHTED_EQUATIONS_H

#include "lanes.h"

/* X, and what is the same for the matrices of all levels: A = X'CX/total + λ(diag(inverse) − constant constant') +
   damping, with weights C of the rows and a penalty λ of each level. */
typedef struct {
    const double *X, *inverse, *constant;
    int64_t n, d;
    double total, damping;
} table;

/* One level: weights of rows, λ, b → what is left of it, a direction, its image, and the diagonal of A, about. */
typedef struct {
    const double *weights;
    double ridge, diagonal, product, enough;
    double *x, *left, *direction, *image;
    bool moves;
} level;

/* Σ xy. */
static inline double product_of(const double *RESTRICT x, const double *RESTRICT y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += x[j] * y[j];
    return sum;
}

/* x of four rows times a direction: sums of short rows that go through memory take longer than the rows themselves. */
static inline void multiply_four(const double *RESTRICT x, int64_t d, const double *RESTRICT direction, double *found)
{
    const double *RESTRICT y = x + d, *RESTRICT z = y + d, *RESTRICT u = z + d;
    twice a = {0.0}, b = {0.0}, c = {0.0}, e = {0.0};
    int64_t j = 0;
    for (; j + TWICE <= d; j += TWICE) {
        twice p = load_twice(direction + j);
        a += load_twice(x + j) * p, b += load_twice(y + j) * p, c += load_twice(z + j) * p, e += load_twice(u + j) * p;
    }
    lanes k = folded(a), l = folded(b), m = folded(c), n = folded(e);
    for (; j + WIDTH <= d; j += WIDTH) {
        lanes p = load_f64(direction + j);
        k += load_f64(x + j) * p, l += load_f64(y + j) * p, m += load_f64(z + j) * p, n += load_f64(u + j) * p;
    }
    sum_four(k, l, m, n, found);
    for (; j < d; j++) {
        double p = direction[j];
        found[0] += x[j] * p, found[1] += y[j] * p, found[2] += z[j] * p, found[3] += u[j] * p;
    }
}

/* image += Σ wᵢxᵢ(xᵢ'direction) over four rows, which stay in registers' reach while both products are made. */
static inline void add_four(const double *RESTRICT x, int64_t d, const double *w, const double *RESTRICT direction,
                     double *RESTRICT image)
{
    const double *RESTRICT y = x + d, *RESTRICT z = y + d, *RESTRICT u = z + d;
    double products[4];
    multiply_four(x, d, direction, products);
    const double a = w[0] * products[0], b = w[1] * products[1], c = w[2] * products[2], e = w[3] * products[3];
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        image[j] = image[j] + a * x[j] + b * y[j] + c * z[j] + e * u[j];
}

/* The same for two levels, whose rows are read once: reading them takes longer than the products. */
static inline void add_four_of_two(const double *RESTRICT x, int64_t d, const level *first, const level *second, int64_t i)
{
    const double *RESTRICT y = x + d, *RESTRICT z = y + d, *RESTRICT u = z + d;
    const double *v = first->weights + i, *w = second->weights + i;
    double *RESTRICT image = first->image, *RESTRICT other = second->image, p[4], q[4];
    multiply_four(x, d, first->direction, p);
    multiply_four(x, d, second->direction, q);
    const double a = v[0] * p[0], b = v[1] * p[1], c = v[2] * p[2], e = v[3] * p[3];
    const double f = w[0] * q[0], g = w[1] * q[1], h = w[2] * q[2], k = w[3] * q[3];
    INDEPENDENT
    for (int64_t j = 0; j < d; j++) {
        image[j] = image[j] + a * x[j] + b * y[j] + c * z[j] + e * u[j];
        other[j] = other[j] + f * x[j] + g * y[j] + h * z[j] + k * u[j];
    }
}

/* image += w x(x'direction). */
static inline void add_one(const double *RESTRICT x, int64_t d, double w, const double *direction, double *RESTRICT image)
{
    double times = w * product_of(x, direction, d);
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        image[j] += times * x[j];
}

/* X'CX times the directions of some levels, in one reading of X. */
static inline void apply(const table *all, level *const *moving, int64_t count)
{
    int64_t i = 0, d = all->d;
    for (int64_t m = 0; m < count; m++)
        memset(moving[m]->image, 0, (size_t)d * sizeof(double));
    for (; i + 4 <= all->n; i += 4) {
        const double *rows = all->X + i * d;
        int64_t m = 0;
        for (; m + 2 <= count; m += 2)
            add_four_of_two(rows, d, moving[m], moving[m + 1], i);
        if (m < count)
            add_four(rows, d, moving[m]->weights + i, moving[m]->direction, moving[m]->image);
    }
    for (; i < all->n; i++)
        for (int64_t m = 0; m < count; m++)
            add_one(all->X + i * d, d, moving[m]->weights[i], moving[m]->direction, moving[m]->image);
}

/* The levels that move, in their order; how many. */
static inline int64_t those_that_move(level *levels, int64_t count, level **moving)
{
    int64_t found = 0;
    for (int64_t m = 0; m < count; m++)
        if (levels[m].moves)
            moving[found++] = levels + m;
    return found;
}

/* Σ r²/diagonal, what is left in the norm of the preconditioner. */
static inline double left_of(const table *all, const level *own)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < all->d; j++)
        sum += own->left[j] * own->left[j] / (own->diagonal + own->ridge * all->inverse[j]);
    return sum;
}

/* One step of a level, given X'CX times its direction. */
static inline void advance(const table *all, level *own)
{
    int64_t d = all->d;
    double along = own->ridge * product_of(all->constant, own->direction, d);
    for (int64_t j = 0; j < d; j++) {
        double penalty = own->ridge * all->inverse[j] * own->direction[j] - along * all->constant[j];
        own->image[j] = own->image[j] / all->total + penalty + all->damping * own->direction[j];
    }
    double step = own->product / larger(product_of(own->direction, own->image, d), 1e-300), before = own->product;
    for (int64_t j = 0; j < d; j++) {
        own->x[j] += step * own->direction[j];
        own->left[j] -= step * own->image[j];
    }
    own->product = left_of(all, own);
    own->moves = own->product > own->enough;
    double kept = own->product / larger(before, 1e-300);
    for (int64_t j = 0; j < d; j++)
        own->direction[j] = own->left[j] / (own->diagonal + own->ridge * all->inverse[j]) + kept * own->direction[j];
}

/* A level at x = 0, with memory of 4d numbers, of which x are the first. */
static inline level start(const table *all, const double *weights, double ridge, const double *b, double tolerance,
                   double *memory)
{
    int64_t d = all->d;
    double sum = 0.0;
    for (int64_t i = 0; i < all->n; i++)
        sum += weights[i];
    level own = {weights, ridge, sum / all->total + all->damping, 0.0, 0.0,
                 memory, memory + d, memory + 2 * d, memory + 3 * d, false};
    memset(own.x, 0, (size_t)d * sizeof *b);
    memcpy(own.left, b, (size_t)d * sizeof *b);
    for (int64_t j = 0; j < d; j++)
        own.direction[j] = b[j] / (own.diagonal + ridge * all->inverse[j]);
    own.product = left_of(all, &own);
    own.enough = tolerance * tolerance * own.product;
    own.moves = own.product > own.enough;
    return own;
}

/* x of all levels with Ax = b, in up to so many steps; `moving` is memory for as many pointers. */
static inline void solve(const table *all, level *levels, int64_t count, int64_t steps, level **moving)
{
    for (int64_t number = 0; number < steps; number++) {
        int64_t left = those_that_move(levels, count, moving);
        if (!left)
            break;
        apply(all, moving, left);
        for (int64_t m = 0; m < left; m++)
            advance(all, moving[m]);
    }
}

#endif
