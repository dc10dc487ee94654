/* exp and log that loops over several numbers vectorise: the library's own take one number at a time. */
#ifndef TAILPROOF_EXP_LOG_H
#define TAILPROOF_EXP_LOG_H

#include "common.h"

/* log x of a positive number, as in fdlibm: x = 2^k(1 + f), √½ < 1 + f ≤ √2, and log(1 + f) = f − f²/2 +
   s(f²/2 + R(s²)), s = f/(2 + f). */
static inline double log_of(double x)
{
    const uint64_t root = 0x3fe6a09e667f3bcd, offset = 0x4338000000000000; /* of √½, and of 1.5 · 2^52 */
    uint64_t bits, whole;
    memcpy(&bits, &x, sizeof bits);
    uint64_t k = (uint64_t)((int64_t)(bits - root) >> 52);
    double f, power;
    bits -= k << 52, whole = k + offset;
    memcpy(&f, &bits, sizeof f);
    memcpy(&power, &whole, sizeof power);
    power -= 6755399441055744.0, f -= 1.0;
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double rest = 1.531383769920937332e-01 + z * 1.479819860511658591e-01;
    rest = 2.222219843214978396e-01 + z * (1.818357216161805012e-01 + z * rest);
    rest = z * (6.666666666666735130e-01 + z * (3.999999999940941908e-01 + z * (2.857142874366239149e-01 + z * rest)));
    double found = power * 6.93147180369123816490e-01 -
                   ((half - (s * (half + rest) + power * 1.90821492927058770002e-10)) - f);
    return x <= 1.7976931348623157e308 ? found : x;
}

/* exp x, as in fdlibm: x = k log 2 + r, |r| ≤ ½ log 2, and exp r = 1 + r + rc/(2 − c), c = r − r²P(r²). Numbers whose
   exponential is no normal number count as the last that has one; NaN stays. */
static inline double exp_of(double x)
{
    const double offset = 6755399441055744.0; /* 1.5 · 2^52: what is left of a sum with it is a whole number */
    double within = clip(x, -708.0, 709.0), shifted = within * 1.44269504088896338700 + offset, k = shifted - offset;
    double high = within - k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10, r = high - low;
    double t = r * r, rest = -1.65339022054652515390e-06 + t * 4.13813679705723846039e-08;
    rest = -2.77777777770155933842e-03 + t * (6.61375632143793436117e-05 + t * rest);
    double c = r - t * (1.66666666666666019037e-01 + t * rest), power;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return power * (1.0 - ((low - r * c / (2.0 - c)) - high));
}

#endif
