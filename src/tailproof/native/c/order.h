/* Numbers in order. */
#ifndef TAILPROOF_ORDER_H
#define TAILPROOF_ORDER_H

#include "common.h"

/* Move numbers so that the one at `place` is where it would be if they were sorted, with none larger before it and
   none smaller after it (Hoare's Find); none may be NaN. */
static inline void put_in_place(double *x, int64_t n, int64_t place)
{
    for (int64_t low = 0, high = n - 1; low < high;) {
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
