/* What every file needs: exported names, status codes, sums that may be reordered, templates over types. */
#ifndef TAILPROOF_COMMON_H
#define TAILPROOF_COMMON_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if defined(__GNUC__) || defined(__clang__)
#define RESTRICT restrict
#define INLINED static inline __attribute__((always_inline)) /* where arguments are to be known to the compiler */
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define RESTRICT __restrict
#define INLINED static inline
#define PREFETCH(address) ((void)(address))
#endif

/* Numbers of a type that are fetched from memory together. */
#define IN_A_LINE(type) ((int64_t)(64 / sizeof(type)))

/* A loop after SUM(a, b) adds to a and b in any order, so that it vectorises; NaN and infinity survive.
   But for those of lanes.h no other sum of the library is reordered. A loop after INDEPENDENT has no order at all. */
#if defined(_MSC_VER) && !defined(__clang__)
#define SUM(...) __pragma(omp simd reduction(+ : __VA_ARGS__))
#define INDEPENDENT __pragma(omp simd)
#else
#define PRAGMA(text) _Pragma(#text)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define INDEPENDENT PRAGMA(omp simd)
#endif

/* What an exported function returns; the Python layer turns all but the first into exceptions. */
enum status { DONE = 0, BAD_ROW, BAD_ENTRY, BAD_CLASS, NO_MEMORY, BAD_ENDS, SINGULAR };

/* The larger and the smaller of two; a NaN in the first place stays. */
static inline double at_least(double x, double low) { return x < low ? low : x; }
static inline double at_most(double x, double high) { return x > high ? high : x; }
static inline double clip(double x, double low, double high) { return at_most(at_least(x, low), high); }

/* sign(x), with NaN for NaN. */
static inline double sign_of(double x) { return x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : x); }

/* The larger of two numbers, and the shorter of two lengths. */
static inline double larger(double x, double y) { return x > y ? x : y; }

static inline int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

/* Whether all numbers of rows lie in [0, n). */
static inline bool rows_exist(const int64_t *rows, int64_t m, int64_t n)
{
    int64_t outside = 0;
    SUM(outside)
    for (int64_t t = 0; t < m; t++)
        outside += (uint64_t)rows[t] >= (uint64_t)n;
    return outside == 0;
}

/* Whether k blocks end in order, the last one after m rows. */
static inline bool blocks_end(const int64_t *ends, int64_t k, int64_t m)
{
    for (int64_t g = 0; g < k; g++)
        if (ends[g] < (g ? ends[g - 1] : 0))
            return false;
    return ends[k - 1] == m;
}

#endif
