/* Several numbers at once, for loops whose sums stay in registers: a loop after SUM puts them into memory at its end,
   which takes longer than the whole sum where rows are short. Plain numbers where the compiler has no such type. */
#ifndef TAILPROOF_LANES_H
#define TAILPROOF_LANES_H

#include "common.h"

#if defined(__GNUC__) || defined(__clang__)

#ifdef __SSE2__
#include <immintrin.h>
#endif
#ifdef __has_builtin
#define HAS_SHUFFLES __has_builtin(__builtin_shufflevector)
#else
#define HAS_SHUFFLES 0
#endif

#define WIDTH 4
typedef double lanes __attribute__((vector_size(WIDTH * sizeof(double))));

/* WIDTH numbers, as doubles, and back. */
static inline lanes load_f64(const double *x)
{
    lanes loaded;
    memcpy(&loaded, x, sizeof loaded);
    return loaded;
}

static inline lanes load_f32(const float *x)
{
    float loaded __attribute__((vector_size(WIDTH * sizeof(float))));
    memcpy(&loaded, x, sizeof loaded);
    return __builtin_convertvector(loaded, lanes);
}

static inline void store(double *x, lanes stored) { memcpy(x, &stored, sizeof stored); }

/* Σ of the lanes. */
static inline double sum_of(lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

/* The sum of each of four. */
static inline void sum_four(lanes a, lanes b, lanes c, lanes d, double *sums)
{
#if HAS_SHUFFLES
    lanes ab = __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
    lanes cd = __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
    store(sums, __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
#else
    store(sums, (lanes){sum_of(a), sum_of(b), sum_of(c), sum_of(d)});
#endif
}

/* Four rows of four numbers become four columns, in place. */
static inline void transpose(lanes *row)
{
#if HAS_SHUFFLES
    lanes even = __builtin_shufflevector(row[0], row[1], 0, 4, 2, 6);
    lanes odd = __builtin_shufflevector(row[0], row[1], 1, 5, 3, 7);
    lanes more_even = __builtin_shufflevector(row[2], row[3], 0, 4, 2, 6);
    lanes more_odd = __builtin_shufflevector(row[2], row[3], 1, 5, 3, 7);
    row[0] = __builtin_shufflevector(even, more_even, 0, 1, 4, 5);
    row[1] = __builtin_shufflevector(odd, more_odd, 0, 1, 4, 5);
    row[2] = __builtin_shufflevector(even, more_even, 2, 3, 6, 7);
    row[3] = __builtin_shufflevector(odd, more_odd, 2, 3, 6, 7);
#else
    for (int i = 0; i < WIDTH; i++)
        for (int j = 0; j < i; j++) {
            double other = row[i][j];
            row[i][j] = row[j][i];
            row[j][i] = other;
        }
#endif
}

/* Twice as many numbers, for the long part of a sum: processors that have them add them at once. */
#define TWICE (2 * WIDTH)
typedef double twice __attribute__((vector_size(TWICE * sizeof(double))));

static inline twice load_twice(const double *x)
{
    twice loaded;
    memcpy(&loaded, x, sizeof loaded);
    return loaded;
}

/* The sum of both halves. */
static inline lanes folded(twice x)
{
    lanes half[2];
    memcpy(half, &x, sizeof half);
    return half[0] + half[1];
}

#ifdef __AVX__

/* Lane by lane the first where it is larger, or smaller, else the second. */
static inline lanes larger_lanes(lanes x, lanes y) { return (lanes)_mm256_max_pd((__m256d)x, (__m256d)y); }
static inline lanes smaller_lanes(lanes x, lanes y) { return (lanes)_mm256_min_pd((__m256d)x, (__m256d)y); }

#else

typedef int64_t bits __attribute__((vector_size(sizeof(lanes))));

/* x where a bit of the first is set, else y. */
static inline lanes either(bits first, lanes x, lanes y) { return (lanes)((first & (bits)x) | (~first & (bits)y)); }
static inline lanes larger_lanes(lanes x, lanes y) { return either(x > y, x, y); }
static inline lanes smaller_lanes(lanes x, lanes y) { return either(x < y, x, y); }

#endif

/* The largest of the lanes. */
static inline double largest_of(lanes x) { return larger(larger(x[0], x[2]), larger(x[1], x[3])); }

#else

#define WIDTH 1
#define TWICE 1
typedef double lanes, twice;

static inline lanes load_f64(const double *x) { return *x; }
static inline twice load_twice(const double *x) { return *x; }
static inline lanes folded(twice x) { return x; }
static inline lanes load_f32(const float *x) { return *x; }
static inline void store(double *x, lanes stored) { *x = stored; }
static inline double sum_of(lanes x) { return x; }
static inline void sum_four(lanes a, lanes b, lanes c, lanes d, double *sums)
{
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}
static inline void transpose(lanes *row) { (void)row; }
static inline lanes larger_lanes(lanes x, lanes y) { return larger(x, y); }
static inline lanes smaller_lanes(lanes x, lanes y) { return x < y ? x : y; }
static inline double largest_of(lanes x) { return x; }

#endif

/* Copy rows of d numbers column by column, `few` numbers apart, a square at a time; rows and columns are whole squares. */
static inline void turn_squares(const double *RESTRICT X, int64_t d, int64_t rows, int64_t columns,
                                double *RESTRICT into, int64_t few)
{
    for (int64_t i = 0; i < rows; i += WIDTH)
        for (int64_t j = 0; j < columns; j += WIDTH) {
            lanes square[WIDTH];
            for (int64_t k = 0; k < WIDTH; k++)
                square[k] = load_f64(X + (i + k) * d + j);
            transpose(square);
            for (int64_t k = 0; k < WIDTH; k++)
                store(into + (j + k) * few + i, square[k]);
        }
}

/* A copy that leaves the cache to others, where the processor has such stores; complete when this returns. */
static inline void write_past_cache(const double *RESTRICT from, int64_t size, double *RESTRICT to)
{
    int64_t i = 0;
#ifdef __SSE2__
    for (; i < size && (uintptr_t)(to + i) % sizeof(__m128d); i++)
        to[i] = from[i];
    for (; i + 2 <= size; i += 2)
        _mm_stream_pd(to + i, _mm_loadu_pd(from + i));
    _mm_sfence();
#endif
    memcpy(to + i, from + i, (size_t)(size - i) * sizeof *to);
}

#endif
