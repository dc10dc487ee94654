/* Columns to rows. */
#include "batches.h"
#include "lanes.h"

#define TILE 32           /* rows that are filled together: their lines stay in the fast cache */
#define LARGE (1 << 18)   /* numbers that no cache keeps until somebody looks at them */

const int64_t bytes_of_kind[] = {8, 4, 1, 2, 4, 8, 1, 2, 4, 8};

/* What Arrow's C data interface hands over; its names and their order are Arrow's. */
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#define CONVERT(type)                                                                                                  \
    {                                                                                                                  \
        const type *from = (const type *)column->values + first;                                                       \
        for (int64_t i = 0; i < count; i++)                                                                            \
            into[i] = (double)from[i];                                                                                 \
    }                                                                                                                  \
    break;

/* Numbers of a column of any type, from the first on, as doubles. */
static void convert(const struct column *column, int64_t first, int64_t count, double *RESTRICT into)
{
    switch (column->kind) {
    case KIND_F64: CONVERT(double)
    case KIND_F32: CONVERT(float)
    case KIND_I8: CONVERT(int8_t)
    case KIND_I16: CONVERT(int16_t)
    case KIND_I32: CONVERT(int32_t)
    case KIND_I64: CONVERT(int64_t)
    case KIND_U8: CONVERT(uint8_t)
    case KIND_U16: CONVERT(uint16_t)
    case KIND_U32: CONVERT(uint32_t)
    default: CONVERT(uint64_t)
    }
}

/* Whether all of some numbers are there: their bits are looked at by the byte where that is possible. */
static bool all_there(const uint8_t *there, int64_t first, int64_t count)
{
    int64_t end = first + count, i = first;
    while (i < end && (i & 7 || end - i < 8 ? there[i >> 3] >> (i & 7) & 1 : there[i >> 3] == 255))
        i += i & 7 || end - i < 8 ? 1 : 8;
    return i >= end;
}

/* Numbers of a column as doubles: where they are, if that is what they are, else in `into`; NaN for those not there. */
static const double *doubles_of(const struct column *column, int64_t start, int64_t count, double *into)
{
    int64_t first = column->offset + start;
    bool all = !column->there || all_there(column->there, first, count);
    if (column->kind == KIND_F64 && all)
        return (const double *)column->values + first;
    convert(column, first, count, into);
    for (int64_t i = 0; i < (all ? 0 : count); i++)
        if (!(column->there[(first + i) >> 3] >> ((first + i) & 7) & 1))
            into[i] = NAN;
    return into;
}

/* Least and largest number of columns so far, NaN aside, and a sum that is NaN once one was not finite. */
struct ends {
    lanes low, high, spoiled;
};

/* low = min(low, x), high = max(high, x); x · 0 spoils the sum where x is NaN or infinite. */
static inline void widen(struct ends *ends, lanes some)
{
    ends->low = smaller_lanes(some, ends->low);
    ends->high = larger_lanes(some, ends->high);
    ends->spoiled += some * 0.0;
}

/* Write WIDTH columns side by side into rows of d numbers, a square of numbers at a time. Returns how many rows that
   has written: all but the last few. */
static inline int64_t write_squares(const double *const *from, int64_t count, int64_t d, double *RESTRICT to,
                                    struct ends *ends)
{
    lanes square[WIDTH];
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        for (int64_t j = 0; j < WIDTH; j++)
            square[j] = load_f64(from[j] + i);
        transpose(square);
        for (int64_t j = 0; j < WIDTH; j++) {
            widen(ends, square[j]);
            store(to + (i + j) * d, square[j]);
        }
    }
    return i;
}

/* Write one column into rows of d numbers, from row `first` on; returns NaN where a number is not finite, else 0. */
static double write_column(const double *from, int64_t first, int64_t count, int64_t d, double *RESTRICT to,
                           double *low, double *high)
{
    double spoiled = 0.0;
    for (int64_t i = first; i < count; i++) {
        to[i * d] = from[i];
        *low = from[i] < *low ? from[i] : *low;
        *high = larger(from[i], *high);
        spoiled += from[i] * 0.0;
    }
    return spoiled;
}

/* Write up to WIDTH columns side by side into rows of d numbers; low and high go out to the least and largest number
   of each. Returns NaN where a number is not finite, else 0. */
static double write_group(const double *const *from, int64_t width, int64_t count, int64_t d, double *RESTRICT to,
                          double *low, double *high)
{
    double spoiled = 0.0;
    int64_t done = 0;
    if (width == WIDTH) {
        struct ends ends = {load_f64(low), load_f64(high), {0.0}};
        done = write_squares(from, count, d, to, &ends);
        store(low, ends.low);
        store(high, ends.high);
        spoiled = sum_of(ends.spoiled);
    }
    for (int64_t c = 0; c < width; c++)
        spoiled += write_column(from[c], done, count, d, to + c, low + c, high + c);
    return spoiled;
}

/* Write a tile, rows `start` to `start + count` of d columns; returns NaN where a number is not finite, else 0. The
   next one is fetched meanwhile: a processor does not follow as many columns by itself. */
static double fill_tile(const struct column *columns, int64_t start, int64_t count, int64_t d, double *RESTRICT tile,
                        double *low, double *high)
{
    double converted[WIDTH][TILE], spoiled = 0.0;
    for (int64_t j = 0; j < d; j += WIDTH) {
        const double *from[WIDTH];
        int64_t width = shorter(WIDTH, d - j);
        for (int64_t c = 0; c < width; c++) {
            from[c] = doubles_of(columns + j + c, start, count, converted[c]);
            for (int64_t i = 0; i < (from[c] == converted[c] ? 0 : TILE); i += IN_A_LINE(double))
                PREFETCH(from[c] + TILE + i);
        }
        spoiled += write_group(from, width, count, d, tile + j, low + j, high + j);
    }
    return spoiled;
}

double *room_for_tile(int64_t n, int64_t d)
{
    /* Many rows go past the cache, a tile at a time; else each line of X would be read before it is written. */
    return n * d > LARGE ? malloc((size_t)(TILE * d) * sizeof(double)) : NULL;
}

void fill_tiles(const struct column *columns, int64_t n, int64_t d, double *RESTRICT X, bool *good, double *low,
                double *high, double *aside)
{
    for (int64_t start = 0; start < n; start += TILE, X += TILE * d) {
        int64_t count = shorter(TILE, n - start);
        double *tile = aside ? aside : X, spoiled = fill_tile(columns, start, count, d, tile, low, high);
        for (int64_t i = 0; i < (spoiled != 0.0 ? count : 0); i++)
            for (int64_t j = 0; j < d; j++)
                good[start + i] = good[start + i] && isfinite(tile[i * d + j]);
        if (aside)
            write_past_cache(aside, count * d, X);
    }
}

EXPORT int fill_rows(const struct column *columns, int64_t n, int64_t d, double *RESTRICT X, bool *good, double *low,
                     double *high)
{
    double *aside = room_for_tile(n, d);
    fill_tiles(columns, n, d, X, good, low, high, aside);
    free(aside);
    return DONE;
}

/* Where the numbers of d columns of a record batch are, the chosen ones by their places in it, of kinds that the
   caller knows. Returns false where one lies so that it cannot be read. */
EXPORT int columns_of_batch(const struct ArrowArray *batch, int64_t d, const int64_t *chosen, const int64_t *kinds,
                            struct column *columns)
{
    for (int64_t j = 0; j < d; j++) {
        const struct ArrowArray *array = chosen[j] < batch->n_children ? batch->children[chosen[j]] : NULL;
        if (!array || array->n_buffers != 2 || array->length < batch->offset + batch->length)
            return false;
        const void *values = array->buffers[1];
        if (!values || (uintptr_t)values % (uintptr_t)bytes_of_kind[kinds[j]])
            return false;
        const uint8_t *there = array->null_count ? array->buffers[0] : NULL;
        columns[j] = (struct column){values, there, array->offset + batch->offset, kinds[j]};
    }
    return true;
}
