/* Which functions this library has, and which instructions this processor and its operating system can run. */
#include "common.h"

/* Number of the set of exported functions and their arguments: library.py has the same, and refuses another. */
EXPORT int kernels_version(void) { return 28; }

#if defined(__x86_64__) || defined(_M_X64)

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
/* Registers of the processor's answer about a leaf of its features, and which of them the system keeps. */
static void ask(int leaf, uint32_t r[4]) { __cpuidex((int *)r, leaf, 0); }
static uint64_t enabled_state(void) { return _xgetbv(0); }
#else
#include <cpuid.h>
static void ask(int leaf, uint32_t r[4])
{
    if (!__get_cpuid_count((unsigned)leaf, 0, r, r + 1, r + 2, r + 3))
        memset(r, 0, 4 * sizeof *r);
}
static uint64_t enabled_state(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
#endif

/* Whether all these bits are set. */
static bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

/* Level of the x86-64 architecture, as in the System V ABI: 1, 3 or 4. */
EXPORT int cpu_level(void)
{
    uint32_t one[4], seven[4], extended[4];
    ask(1, one);
    ask(7, seven);
    ask((int)0x80000001u, extended);
    /* FMA, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C; AVX2, BMI1, BMI2; LZCNT. */
    uint32_t basic = 1u << 12 | 1u << 20 | 1u << 22 | 1u << 23 | 1u << 27 | 1u << 28 | 1u << 29;
    if (!has(one[2], basic) || !has(seven[1], 1u << 3 | 1u << 5 | 1u << 8) || !has(extended[2], 1u << 5))
        return 1;
    uint64_t state = enabled_state();
    if ((state & 0x06) != 0x06) /* the system saves AVX registers */
        return 1;
    /* AVX-512 F, DQ, CD, BW, VL, and the system saves their registers. */
    bool wide = has(seven[1], 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31) && (state & 0xe6) == 0xe6;
    return wide ? 4 : 3;
}

#else

/* Other processors have one build. */
EXPORT int cpu_level(void) { return 1; }

#endif
