/* Rows in single precision that stay in the cache while one fit after the other uses them: their products with a vector,
   and those of weights with them, in one reading. */
#ifndef TAILPROOF_PACKED_ROWS_H
#define TAILPROOF_PACKED_ROWS_H

#include "common.h"

#if defined(__GNUC__) || defined(__clang__)
#ifdef __AVX512F__
#define ACROSS 16
#elif defined(__AVX__)
#define ACROSS 8
#else
#define ACROSS 4
#endif
typedef float across __attribute__((vector_size(ACROSS * sizeof(float))));
typedef float four __attribute__((vector_size(4 * sizeof(float))));

static inline across load_across(const float *x)
{
    across loaded;
    memcpy(&loaded, x, sizeof loaded);
    return loaded;
}

static inline void store_across(float *x, across stored) { memcpy(x, &stored, sizeof stored); }

#if ACROSS == 16 && defined(__has_builtin)
#define HAS_UNPACKING __has_builtin(__builtin_shufflevector)
#else
#define HAS_UNPACKING 0
#endif

#if HAS_UNPACKING
#define TOGETHER 4
#define PAIRS(x, y, a, b, c, d) \
    __builtin_shufflevector(x, y, a, b, c, d, 4 + (a), 4 + (b), 4 + (c), 4 + (d), 8 + (a), 8 + (b), 8 + (c), 8 + (d), \
                            12 + (a), 12 + (b), 12 + (c), 12 + (d))

/* The sum of each of four, by halves: numbers of all four meet in quarters of a register before these are added. */
static inline void sum_together(const across *x, float *sums)
{
    four parts[4];
    across first = PAIRS(x[0], x[1], 0, 16, 1, 17) + PAIRS(x[0], x[1], 2, 18, 3, 19);
    across last = PAIRS(x[2], x[3], 0, 16, 1, 17) + PAIRS(x[2], x[3], 2, 18, 3, 19);
    across all = PAIRS(first, last, 0, 1, 16, 17) + PAIRS(first, last, 2, 3, 18, 19);
    memcpy(parts, &all, sizeof parts);
    parts[0] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    memcpy(sums, parts, sizeof *parts);
}
#else
#define TOGETHER 2
static inline void sum_together(const across *x, float *sums)
{
    for (int k = 0; k < TOGETHER; k++) {
        float numbers[ACROSS];
        memcpy(numbers, x + k, sizeof numbers);
        for (int size = ACROSS / 2; size; size /= 2)
            for (int i = 0; i < size; i++)
                numbers[i] += numbers[i + size];
        sums[k] = numbers[0];
    }
}
#endif
#else
#define ACROSS 1
#define TOGETHER 2
typedef float across;
static inline across load_across(const float *x) { return *x; }
static inline void store_across(float *x, across stored) { *x = stored; }
static inline void sum_together(const across *x, float *sums) { memcpy(sums, x, TOGETHER * sizeof *sums); }
#endif

#define TEAM 4  /* fits that share a reading of the rows, at most: their sums stay in registers */
#define LINE 16 /* numbers that rows are padded to with zeros, and ACROSS divides */

typedef struct {
    int64_t n, d, stride; /* n is a multiple of TOGETHER: the last rows may be zeros */
    float *X;
} packed_rows;

static inline int64_t padded(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Some rows, one after the other. */
static inline void pack(packed_rows *rows, const double *X, const int64_t *chosen, int64_t count)
{
    int64_t d = rows->d, stride = rows->stride;
    for (int64_t i = 0; i < count; i++) {
        const double *RESTRICT x = X + chosen[i] * d;
        float *RESTRICT to = rows->X + i * stride;
        INDEPENDENT
        for (int64_t j = 0; j < d; j++)
            to[j] = (float)x[j];
    }
    rows->n = padded(count, TOGETHER);
    for (int64_t i = count; i < rows->n; i++)
        memset(rows->X + i * stride, 0, (size_t)stride * sizeof(float));
}

/* What a fit has of every row, and of every column. */
typedef struct {
    float *weights, *predictions; /* of rows */
    float *direction, *image;     /* of columns, padded with zeros */
} products;

/* x·direction of some rows and of every fit. */
INLINED void predict_together(const float *RESTRICT x, int64_t stride, int fits, products *const *of, int64_t row,
                              float (*weighted)[TOGETHER])
{
    across sums[TEAM][TOGETHER];
    const float *direction[TEAM];
    for (int f = 0; f < fits; f++) {
        direction[f] = of[f]->direction;
        memset(sums[f], 0, sizeof sums[f]);
    }
    for (int64_t j = 0; j < stride; j += ACROSS)
        for (int f = 0; f < fits; f++)
            for (int k = 0; k < TOGETHER; k++)
                sums[f][k] += load_across(x + k * stride + j) * load_across(direction[f] + j);
    for (int f = 0; f < fits; f++) {
        sum_together(sums[f], of[f]->predictions + row);
        for (int k = 0; k < TOGETHER; k++)
            weighted[f][k] = of[f]->weights[row + k] * of[f]->predictions[row + k];
    }
}

/* Add rows times weights to the image of every fit. */
INLINED void add_together(const float *RESTRICT x, int64_t stride, int fits, products *const *of,
                          float (*weighted)[TOGETHER])
{
    float *image[TEAM], weights[TEAM][TOGETHER];
    for (int f = 0; f < fits; f++) {
        image[f] = of[f]->image;
        memcpy(weights[f], weighted[f], sizeof weights[f]);
    }
    for (int64_t j = 0; j < stride; j += ACROSS) {
        across of_rows[TOGETHER];
        for (int k = 0; k < TOGETHER; k++)
            of_rows[k] = load_across(x + k * stride + j);
        for (int f = 0; f < fits; f++) {
            across sum = load_across(image[f] + j);
            for (int k = 0; k < TOGETHER; k++)
                sum += of_rows[k] * weights[f][k];
            store_across(image[f] + j, sum);
        }
    }
}

/* Images Σ wx of all rows, with predictions x·direction and images Σ wx(x·direction) instead if they are `curved`. */
INLINED void read_rows(const packed_rows *rows, int fits, products *const *of, bool curved)
{
    float weighted[TEAM][TOGETHER];
    for (int f = 0; f < fits; f++)
        memset(of[f]->image, 0, (size_t)rows->stride * sizeof(float));
    for (int64_t i = 0; i < rows->n; i += TOGETHER) {
        const float *x = rows->X + i * rows->stride;
        if (curved)
            predict_together(x, rows->stride, fits, of, i, weighted);
        else
            for (int f = 0; f < fits; f++)
                memcpy(weighted[f], of[f]->weights + i, sizeof *weighted);
        add_together(x, rows->stride, fits, of, weighted);
    }
}

/* The same for a number of fits that the compiler knows. */
INLINED void read_rows_for(const packed_rows *rows, int fits, products *const *of, bool curved)
{
    if (fits == 4)
        read_rows(rows, 4, of, curved);
    else if (fits == 3)
        read_rows(rows, 3, of, curved);
    else if (fits == 2)
        read_rows(rows, 2, of, curved);
    else if (fits == 1)
        read_rows(rows, 1, of, curved);
}

#endif
