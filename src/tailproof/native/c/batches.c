/* Columns to rows. */
#include "lanes.h"

#define TILE 64 /* rows that are filled together: their lines stay in the fast cache */
#define GROUP 8 /* columns that are written side by side, a line of a row at a time */

/* Kinds of numbers; tailproof.native.batches has the same codes. */
enum kind { KIND_F64 = 0, KIND_F32, KIND_I8, KIND_I16, KIND_I32, KIND_I64, KIND_U8, KIND_U16, KIND_U32, KIND_U64 };

/* Numbers from `offset` on, and a bit for each that says whether it is there; all are, where that is NULL. */
struct column {
    const void *values;
    const uint8_t *there;
    int64_t offset, kind;
};

#define CONVERT(type)                                                                                                  \
    {                                                                                                                  \
        const type *from = (const type *)column->values + first;                                                       \
        for (int64_t i = 0; i < count; i++)                                                                            \
            into[i] = (double)from[i];                                                                                 \
    }                                                                                                                  \
    break;

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

/* Numbers of a column as doubles: where they are, if that is what they are, else in `into`; NaN for those not there. */
static const double *doubles_of(const struct column *column, int64_t start, int64_t count, double *into)
{
    int64_t first = column->offset + start;
    if (column->kind == KIND_F64 && !column->there)
        return (const double *)column->values + first;
    convert(column, first, count, into);
    for (int64_t i = 0; i < (column->there ? count : 0); i++)
        if (!(column->there[(first + i) >> 3] >> ((first + i) & 7) & 1))
            into[i] = NAN;
    return into;
}

/* Least and largest of some numbers, as far as they go beyond *low and *high, NaN aside; returns NaN where one is not
   finite, else 0. */
static double extremes(const double *x, int64_t count, double *low, double *high)
{
    lanes spoiled = {0.0}, most = spoiled - INFINITY, opposite = most;
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        lanes some = load_f64(x + i);
        most = larger_lanes(some, most);
        opposite = larger_lanes(-some, opposite);
        spoiled += some * 0.0;
    }
    double sum = sum_of(spoiled), top = largest_of(most), bottom = largest_of(opposite);
    for (; i < count; i++) {
        top = larger(x[i], top);
        bottom = larger(-x[i], bottom);
        sum += x[i] * 0.0;
    }
    *high = larger(top, *high);
    *low = -larger(bottom, -*low);
    return sum;
}

/* Write columns side by side into rows of d numbers. */
static void write_group(const double *const *from, int64_t width, int64_t count, int64_t d, double *RESTRICT to)
{
    if (width == GROUP)
        for (int64_t i = 0; i < count; i++, to += d)
            for (int64_t c = 0; c < GROUP; c++)
                to[c] = from[c][i];
    else
        for (int64_t i = 0; i < count; i++, to += d)
            for (int64_t c = 0; c < width; c++)
                to[c] = from[c][i];
}

/* Write d columns of n numbers into the rows of X; good becomes false for rows that are not finite; low and high go
   out to the least and largest number of each column. */
EXPORT int fill_rows(const struct column *columns, int64_t n, int64_t d, double *RESTRICT X, bool *good, double *low,
                     double *high)
{
    double converted[GROUP][TILE];
    for (int64_t start = 0; start < n; start += TILE) {
        int64_t count = shorter(TILE, n - start);
        double spoiled = 0.0, *tile = X + start * d;
        for (int64_t j = 0; j < d; j += GROUP) {
            const double *from[GROUP];
            int64_t width = shorter(GROUP, d - j);
            for (int64_t c = 0; c < width; c++) {
                from[c] = doubles_of(columns + j + c, start, count, converted[c]);
                spoiled += extremes(from[c], count, low + j + c, high + j + c);
            }
            write_group(from, width, count, d, tile + j);
        }
        for (int64_t i = 0; i < (spoiled != 0.0 ? count : 0); i++)
            for (int64_t j = 0; j < d; j++)
                good[start + i] = good[start + i] && isfinite(tile[i * d + j]);
    }
    return DONE;
}
