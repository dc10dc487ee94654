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

/* Quarters of lanes, added up. */
static inline four folded_to_four(across x)
{
    four parts[ACROSS / 4];
    memcpy(parts, &x, sizeof parts);
#if ACROSS == 16
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
#elif ACROSS == 8
    return parts[0] + parts[1];
#else
    return parts[0];
#endif
}

static inline float sum_across(across x)
{
    four sums = folded_to_four(x);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
#else
#define ACROSS 1
typedef float across;
static inline across load_across(const float *x) { return *x; }
static inline void store_across(float *x, across stored) { *x = stored; }
static inline float sum_across(across x) { return x; }
#endif

#define TOGETHER 8 /* rows: enough sums for the processor to be busy while one of them is on its way */
#define LINE 16    /* numbers that rows are padded to with zeros, and ACROSS divides */

typedef struct {
    int64_t n, d, stride; /* n is a multiple of TOGETHER: the last rows may be zeros */
    float *X;
} packed_rows;

static inline int64_t padded(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Rows of positive share, one after the other. */
static inline void pack(packed_rows *rows, const double *X, int64_t n, const double *shares)
{
    int64_t m = 0, d = rows->d, stride = rows->stride;
    for (int64_t i = 0; i < n; i++) {
        if (!(shares[i] > 0.0))
            continue;
        const double *RESTRICT x = X + i * d;
        float *RESTRICT to = rows->X + m++ * stride;
        INDEPENDENT
        for (int64_t j = 0; j < d; j++)
            to[j] = (float)x[j];
    }
    rows->n = padded(m, TOGETHER);
    for (int64_t i = m; i < rows->n; i++)
        memset(rows->X + i * stride, 0, (size_t)stride * sizeof(float));
}

/* Σ x·direction of some rows. */
INLINED void predict_together(const float *RESTRICT x, int64_t stride, const float *RESTRICT direction,
                              float *RESTRICT predictions)
{
    across sums[TOGETHER] = {0};
    for (int64_t j = 0; j < stride; j += ACROSS) {
        across along = load_across(direction + j);
        for (int k = 0; k < TOGETHER; k++)
            sums[k] += load_across(x + k * stride + j) * along;
    }
    for (int k = 0; k < TOGETHER; k++)
        predictions[k] = sum_across(sums[k]);
}

/* Add rows times weights to the image. */
INLINED void add_together(const float *RESTRICT x, int64_t stride, const float *RESTRICT weights, float *RESTRICT image)
{
    for (int64_t j = 0; j < stride; j += ACROSS) {
        across sum = load_across(image + j);
        for (int k = 0; k < TOGETHER; k++)
            sum += load_across(x + k * stride + j) * weights[k];
        store_across(image + j, sum);
    }
}

/* Σ wx. */
static inline void weighted_sum(const packed_rows *rows, const float *weights, float *image)
{
    memset(image, 0, (size_t)rows->stride * sizeof *image);
    for (int64_t i = 0; i < rows->n; i += TOGETHER)
        add_together(rows->X + i * rows->stride, rows->stride, weights + i, image);
}

/* Predictions Xd, and X'CXd. */
static inline void curved(const packed_rows *rows, const float *curvature, const float *direction, float *predictions,
                          float *image)
{
    float weighted[TOGETHER];
    memset(image, 0, (size_t)rows->stride * sizeof *image);
    for (int64_t i = 0; i < rows->n; i += TOGETHER) {
        const float *x = rows->X + i * rows->stride;
        predict_together(x, rows->stride, direction, predictions + i);
        for (int k = 0; k < TOGETHER; k++)
            weighted[k] = curvature[i + k] * predictions[i + k];
        add_together(x, rows->stride, weighted, image);
    }
}

#endif
