/* LU factors of a small square matrix. */
#ifndef TAILPROOF_FACTORS_H
#define TAILPROOF_FACTORS_H

#include "common.h"

/* LU factors of a matrix, with rows exchanged as `pivots` says; false where it is singular. */
static inline bool factorise(double *A, int64_t *pivots, int64_t d)
{
    for (int64_t k = 0; k < d; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < d; i++)
            best = fabs(A[i * d + k]) > fabs(A[best * d + k]) ? i : best;
        if (!(fabs(A[best * d + k]) > 0.0 && isfinite(A[best * d + k])))
            return false;
        pivots[k] = best;
        for (int64_t j = 0; j < d; j++) {
            double moved = A[k * d + j];
            A[k * d + j] = A[best * d + j];
            A[best * d + j] = moved;
        }
        for (int64_t i = k + 1; i < d; i++) {
            double times = A[i * d + k] /= A[k * d + k];
            for (int64_t j = k + 1; j < d; j++)
                A[i * d + j] -= times * A[k * d + j];
        }
    }
    return true;
}

/* b ← A⁻¹b by the factors and row exchanges that `factorise` left in A. */
static inline void solve(const double *A, const int64_t *pivots, int64_t d, double *b)
{
    for (int64_t k = 0; k < d; k++) {
        double moved = b[k];
        b[k] = b[pivots[k]];
        b[pivots[k]] = moved;
    }
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < i; j++)
            b[i] -= A[i * d + j] * b[j];
    for (int64_t i = d - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < d; j++)
            b[i] -= A[i * d + j] * b[j];
        b[i] /= A[i * d + i];
    }
}

#endif
