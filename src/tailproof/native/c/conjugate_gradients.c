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

#define TEMPLATE "conjugate_gradients.inc"
#include "each_real.h"
