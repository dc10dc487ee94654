/* Several numbers at once, for loops whose sums stay in registers: a loop after SUM puts them into memory at its end,
   which takes longer than the whole sum where rows are short. Plain numbers where the compiler has no such type. */
#ifndef TAILPROOF_LANES_H
#define TAILPROOF_LANES_H

#include "common.h"

#if defined(__GNUC__) || defined(__clang__)

#define WIDTH 4
typedef double lanes __attribute__((vector_size(WIDTH * sizeof(double))));

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

static inline double sum_of(lanes x) { return (x[0] + x[2]) + (x[1] + x[3]); }

/* Lane by lane the first where it is larger, else the second. */
static inline lanes larger_lanes(lanes x, lanes y)
{
    typedef int64_t bits __attribute__((vector_size(sizeof(lanes))));
    bits first = x > y;
    return (lanes)((first & (bits)x) | (~first & (bits)y));
}

static inline double largest_of(lanes x) { return larger(larger(x[0], x[2]), larger(x[1], x[3])); }

#else

#define WIDTH 1
typedef double lanes;

static inline lanes load_f64(const double *x) { return *x; }
static inline lanes load_f32(const float *x) { return *x; }
static inline void store(double *x, lanes stored) { *x = stored; }
static inline double sum_of(lanes x) { return x; }
static inline lanes larger_lanes(lanes x, lanes y) { return larger(x, y); }
static inline double largest_of(lanes x) { return x; }

#endif

#endif
