/* Weighted normal equations of many fits by conjugate gradients: A = X'CX + λ(diag(inverse) − constant constant') +
   damping, with weights C of the rows and a penalty λ of each fit. Products with the rows are the caller's, for all
   fits that still move at once; what lies between them is here. */
#include "common.h"

#define ABSENT 1e-13 /* of the usual curvature: that of a direction which no row has */

/* What all fits share; `diagonal` has that of X'CX + damping of every fit, about, if those of X'X are one. */
typedef struct {
    int64_t n, d;
    const double *ridge, *diagonal, *inverse, *constant;
    double damping;
} table;

/* Σ xy. */
static double product_of(const double *RESTRICT x, const double *RESTRICT y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += x[j] * y[j];
    return sum;
}

/* Σ r²/diagonal, what is left in the norm of the preconditioner. */
static double left_of(const table *all, int64_t m, const double *RESTRICT left)
{
    const double *RESTRICT inverse = all->inverse;
    double sum = 0.0, diagonal = all->diagonal[m], ridge = all->ridge[m];
    SUM(sum)
    for (int64_t j = 0; j < all->d; j++)
        sum += left[j] * left[j] / (diagonal + ridge * inverse[j]);
    return sum;
}

/* The next direction: what is left, preconditioned, and a share of the last one. */
static void turn(const table *all, int64_t m, const double *left, double kept, const double *last, double *next)
{
    double diagonal = all->diagonal[m], ridge = all->ridge[m];
    INDEPENDENT
    for (int64_t j = 0; j < all->d; j++)
        next[j] = left[j] / (diagonal + ridge * all->inverse[j]) + kept * last[j];
}

/* to += times · from. */
static void add(double *RESTRICT to, double times, const double *RESTRICT from, int64_t size)
{
    INDEPENDENT
    for (int64_t i = 0; i < size; i++)
        to[i] += times * from[i];
}

/* Add what penalty and damping make of a direction to its image. */
static void penalise(const table *all, int64_t m, const double *RESTRICT x, double *RESTRICT image)
{
    const double *RESTRICT inverse = all->inverse, *RESTRICT constant = all->constant;
    double ridge = all->ridge[m], damping = all->damping, along = ridge * product_of(constant, x, all->d);
    INDEPENDENT
    for (int64_t j = 0; j < all->d; j++)
        image[j] += (ridge * inverse[j] + damping) * x[j] - along * constant[j];
}

/* Fits at x = 0, of which `left` is the right-hand side: the first directions of those that move, packed, their numbers,
   and how many. */
EXPORT int64_t start_equations(int64_t n, int64_t d, int64_t count, const double *ridge, const double *diagonal,
                               const double *inverse, const double *constant, double damping, const double *tolerance,
                               const double *left, double *product, double *enough, double *direction, int64_t *moving)
{
    table all = {n, d, ridge, diagonal, inverse, constant, damping};
    int64_t open = 0;
    for (int64_t m = 0; m < count; m++) {
        product[m] = left_of(&all, m, left + m * d);
        enough[m] = tolerance[m] * tolerance[m] * product[m];
        if (!(product[m] > enough[m]))
            continue;
        turn(&all, m, left + m * d, 0.0, left + m * d, direction + open * d);
        moving[open++] = m;
    }
    return open;
}

/* Predictions of the fits that move times weights of the rows. */
EXPORT int64_t weigh_predictions(int64_t n, int64_t open, const int64_t *moving, const double *curvature,
                                 const double *predictions, double *weighted)
{
    for (int64_t k = 0; k < open; k++) {
        const double *RESTRICT c = curvature + moving[k] * n, *RESTRICT p = predictions + k * n;
        double *RESTRICT w = weighted + k * n;
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            w[i] = c[i] * p[i];
    }
    return open;
}

/* One step of the fits that move, given X times their directions and X'CX times these; how many go on. */
EXPORT int64_t advance_equations(int64_t n, int64_t d, int64_t open, const double *ridge, const double *diagonal,
                                 const double *inverse, const double *constant, double damping, const double *enough,
                                 const double *predictions, double *image, double *left, double *product, double *x,
                                 double *fitted, double *direction, int64_t *moving)
{
    table all = {n, d, ridge, diagonal, inverse, constant, damping};
    int64_t left_over = 0;
    for (int64_t k = 0; k < open; k++) {
        int64_t m = moving[k];
        double *along = direction + k * d, before = product[m];
        penalise(&all, m, along, image + k * d);
        double curved = product_of(along, image + k * d, d);
        if (!(curved > ABSENT * diagonal[m] * product_of(along, along, d)))
            continue; /* what is left is rounding, along which the rows say nothing */
        double step = before / curved;
        add(x + m * d, step, along, d);
        add(fitted + m * n, step, predictions + k * n, n);
        add(left + m * d, -step, image + k * d, d);
        product[m] = left_of(&all, m, left + m * d);
        if (!(product[m] > enough[m]))
            continue;
        turn(&all, m, left + m * d, product[m] / larger(before, 1e-300), along, direction + left_over * d);
        moving[left_over++] = m;
    }
    return left_over;
}
