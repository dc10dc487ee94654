/* Means of values that bad ones among them hardly move: Catoni's, if most blocks of the values agree with it. */
#ifndef TAILPROOF_RESISTANT_H
#define TAILPROOF_RESISTANT_H

#include "common.h"

/* How the mean of n values is found. */
typedef struct {
    int64_t few;       /* blocks behind its start and the scale */
    int64_t looked_at; /* small blocks whose scale tells whether bad values have spoilt the few; 0 for no look */
    int64_t step;      /* from one value to the next in those */
    int64_t large, small; /* blocks most of which must agree with the mean; below 3 they are not asked */
    double width;      /* of ψ, in scales */
    double spoilt;     /* times the scale of small blocks, beyond which the scale is no tail */
    double near_large, near_small; /* how many lengths of the interval that holds most of them agree */
    const double *weights; /* of the values; NULL where all count the same */
} resistance;

/* The same from arrays, in this order. */
static inline resistance resistance_of(const int64_t *blocks, const double *numbers)
{
    return (resistance){blocks[0], blocks[1], blocks[2], blocks[3], blocks[4],
                        numbers[0], numbers[1], numbers[2], numbers[3], NULL};
}

/* Numbers that the functions below need to work with. */
int64_t resistance_work(int64_t n, const resistance *how);

/* Where the search for the mean starts. */
double resistant_start(const double *values, int64_t n, const resistance *how, double *work);

/* Scale of the values; NaN where there is none, or where something is unusual and is to be looked at with care. */
double resistant_scale(const double *values, int64_t n, double start, const resistance *how, double *work);

/* The mean, given start and scale; NaN in the same sense. */
double resistant_mean(const double *values, int64_t n, double start, double scale, const resistance *how, double *work);

#endif
