/* Weighted normal equations of all levels of truncation by conjugate gradients: Hessians are applied, never formed. */
#include "common.h"

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

static double product_of(const double *RESTRICT x, const double *RESTRICT y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += x[j] * y[j];
    return sum;
}

/* image += Σ wᵢxᵢ(xᵢ'direction) over four rows, which stay in registers' reach while both products are made. */
static void add_four(const double *RESTRICT x, int64_t d, const double *w, const double *RESTRICT direction,
                     double *RESTRICT image)
{
    const double *RESTRICT y = x + d, *RESTRICT z = y + d, *RESTRICT u = z + d;
    double a = 0.0, b = 0.0, c = 0.0, e = 0.0;
    SUM(a, b, c, e)
    for (int64_t j = 0; j < d; j++) {
        a += x[j] * direction[j];
        b += y[j] * direction[j];
        c += z[j] * direction[j];
        e += u[j] * direction[j];
    }
    a *= w[0], b *= w[1], c *= w[2], e *= w[3];
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        image[j] += a * x[j] + b * y[j] + c * z[j] + e * u[j];
}

static void add_one(const double *RESTRICT x, int64_t d, double w, const double *direction, double *RESTRICT image)
{
    double times = w * product_of(x, direction, d);
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        image[j] += times * x[j];
}

/* X'CX times the directions of all levels that move, in one reading of X. */
static void apply(const table *all, level *levels, int64_t count)
{
    int64_t i = 0, d = all->d;
    for (int64_t m = 0; m < count; m++)
        memset(levels[m].image, 0, (size_t)d * sizeof(double));
    for (; i + 4 <= all->n; i += 4)
        for (int64_t m = 0; m < count; m++)
            if (levels[m].moves)
                add_four(all->X + i * d, d, levels[m].weights + i, levels[m].direction, levels[m].image);
    for (; i < all->n; i++)
        for (int64_t m = 0; m < count; m++)
            if (levels[m].moves)
                add_one(all->X + i * d, d, levels[m].weights[i], levels[m].direction, levels[m].image);
}

/* Σ r²/diagonal, what is left in the norm of the preconditioner. */
static double left_of(const table *all, const level *own)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < all->d; j++)
        sum += own->left[j] * own->left[j] / (own->diagonal + own->ridge * all->inverse[j]);
    return sum;
}

/* One step of a level, given X'CX times its direction. */
static void advance(const table *all, level *own)
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
static level start(const table *all, const double *weights, double ridge, const double *b, double tolerance,
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

/* x of every level (first axis) with Ax = b, to within a share `tolerance` of b, in up to so many steps. */
EXPORT int conjugate_gradients(const double *X, int64_t n, int64_t d, const double *weights, const double *ridge,
                               int64_t count, const double *b, const double *inverse, const double *constant,
                               double total, double damping, double tolerance, int64_t steps, double *x)
{
    table all = {X, inverse, constant, n, d, total, damping};
    level *levels = malloc((size_t)count * sizeof *levels);
    double *memory = malloc((size_t)(4 * count * d) * sizeof *memory);
    if (levels == NULL || memory == NULL) {
        free(levels);
        free(memory);
        return NO_MEMORY;
    }
    int64_t moving = 0;
    for (int64_t m = 0; m < count; m++) {
        levels[m] = start(&all, weights + m * n, ridge[m], b + m * d, tolerance, memory + 4 * m * d);
        moving += levels[m].moves;
    }
    for (int64_t number = 0; number < steps && moving; number++) {
        moving = 0;
        apply(&all, levels, count);
        for (int64_t m = 0; m < count; m++) {
            if (levels[m].moves)
                advance(&all, levels + m);
            moving += levels[m].moves;
        }
    }
    for (int64_t m = 0; m < count; m++)
        memcpy(x + m * d, levels[m].x, (size_t)d * sizeof *x);
    free(levels);
    free(memory);
    return DONE;
}
