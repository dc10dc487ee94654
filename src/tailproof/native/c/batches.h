/* Columns of numbers, and how they become rows. */
#ifndef TAILPROOF_BATCHES_H
#define TAILPROOF_BATCHES_H

#include "common.h"

/* Kinds of numbers; tailproof.native.batches has the same codes. */
enum kind { KIND_F64 = 0, KIND_F32, KIND_I8, KIND_I16, KIND_I32, KIND_I64, KIND_U8, KIND_U16, KIND_U32, KIND_U64 };

extern const int64_t bytes_of_kind[];

/* Numbers from `offset` on, and a bit for each that says whether it is there; all are, where that is NULL. */
struct column {
    const void *values;
    const uint8_t *there;
    int64_t offset, kind;
};

/* Write d columns of n numbers into the rows of X; good becomes false for rows that are not finite; low and high go
   out to the least and largest number of each column. Where `aside` has room for a tile, rows go past the cache. */
void fill_tiles(const struct column *columns, int64_t n, int64_t d, double *RESTRICT X, bool *good, double *low,
                double *high, double *aside);

/* Room for a tile of so many columns, where the numbers are so many that no cache keeps them until somebody looks at
   them; else NULL. */
double *room_for_tile(int64_t n, int64_t d);

#endif
