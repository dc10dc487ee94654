/* Numbers in order. */
#ifndef TAILPROOF_ORDER_H
#define TAILPROOF_ORDER_H

#include "common.h"

#define NARROWED 500 /* numbers, from which on a few of them are looked at first */
#define LOOKED_AT 96 /* of these */
#define BESIDE_PLACE 14 /* of those: what a place may be off by, three standard errors */
#define NARROWINGS 3 /* at most: numbers may be in an order that misleads */

/* Move the numbers below a limit, or up to it, to the front, and return how many they are. Without a branch, which no
   processor could foresee. */
static inline int64_t move_to_front(double *x, int64_t n, double limit, bool with_limit)
{
    int64_t found = 0;
    if (isinf(limit))
        return limit > 0.0 ? n : 0;
    for (int64_t i = 0; i < n; i++) {
        double here = x[i];
        x[i] = x[found];
        x[found] = here;
        found += with_limit ? here <= limit : here < limit;
    }
    return found;
}

/* Two of the numbers that the one at `place` most likely lies between. */
static inline void look_around(const double *x, int64_t n, int64_t place, double *low, double *high)
{
    double few[LOOKED_AT];
    int64_t middle = place * LOOKED_AT / n;
    for (int64_t k = 0; k < LOOKED_AT; k++) {
        double here = x[k * n / LOOKED_AT];
        int64_t i = k;
        for (; i > 0 && few[i - 1] > here; i--)
            few[i] = few[i - 1];
        few[i] = here;
    }
    *low = middle < BESIDE_PLACE ? -INFINITY : few[middle - BESIDE_PLACE];
    *high = middle + BESIDE_PLACE < LOOKED_AT ? few[middle + BESIDE_PLACE] : INFINITY;
}

/* Narrow down where numbers that belong at `place` are, from `low` to `high`, by those that a few of them suggest. */
static inline void narrow(double *x, int64_t place, int64_t *low, int64_t *high)
{
    for (int round = 0; round < NARROWINGS && *high - *low >= NARROWED; round++) {
        double from, to;
        look_around(x + *low, *high - *low + 1, place - *low, &from, &to);
        int64_t start = *low + move_to_front(x + *low, *high - *low + 1, from, false);
        if (place < start) {
            *high = start - 1;
            continue;
        }
        int64_t end = start + move_to_front(x + start, *high - start + 1, to, true);
        *low = place < end ? start : end;
        *high = place < end ? end - 1 : *high;
    }
}

/* Move numbers so that the one at `place` is where it would be if they were sorted, with none larger before it and
   none smaller after it (Hoare's Find); none may be NaN. */
static inline void put_in_place(double *x, int64_t n, int64_t place)
{
    int64_t low = 0, high = n - 1;
    narrow(x, place, &low, &high);
    while (low < high) {
        double pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (pivot < x[j])
                j--;
            if (i <= j) {
                double moved = x[i];
                x[i++] = x[j];
                x[j--] = moved;
            }
        }
        if (place <= j)
            high = j;
        else if (place >= i)
            low = i;
        else
            return;
    }
}

#endif
