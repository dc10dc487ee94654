/* Statistics of every row of an (m, n) array: block sums, scales and M-estimates.

   Weights are n positive numbers, or NULL where all values count the same. */
#include "lanes.h"
#include "order.h"
#include "resistant.h"
#include "row_gradients.h"

#define RUN 256      /* values that go to one block together, at most: long enough to vectorise */
#define SHORT_RUN 16 /* up to here a loop over the values of one run is not worth starting */
#define ROUNDS 1000  /* of dealing, at least, before runs get longer than one value: sorted data must stay mixed */
#define PLACES 64    /* sums side by side, where a round of dealing is shorter */
#define CHUNK 64     /* values that share one test for being small */

#define SMALL 0.25   /* up to here a shorter polynomial is enough */

#define SQRT2 1.4142135623730951
#define HALF_PI 1.5707963267948966
#define SIXTH 0.16666666666666666
/* E χ(Z) for standard normal Z and χ(x) = x²/(1+x²): makes Geman's M-scale consistent for the normal. */
#define GEMAN 0.34432045758120144
#define VANISHED 1e-9 /* share of the standard deviation that is rounding, and its logarithm */
#define LOG_VANISHED (-20.72326583694641)

enum psi { POLYNOMIAL = 0, WIDE, GUDERMANNIAN };

struct sums { double level, slope, bend; };

/* Median, the midpoint where two numbers share the middle; NaN where one is not finite. Reorders the numbers. */
static double median_of(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return NAN;
    put_in_place(x, n, n / 2);
    double upper = x[n / 2], lower = x[0];
    if (n % 2)
        return upper;
    for (int64_t i = 1; i < n / 2; i++)
        lower = larger(lower, x[i]);
    return lower / 2.0 + upper / 2.0; /* their sum may overflow */
}

/* Values of some rounds of dealing whose sums are kept side by side. */
static int64_t places_of(int64_t k, int64_t run) { return k * run * (k * run < PLACES ? PLACES / (k * run) : 1); }

/* Σ w; n where there are no weights. */
static double total_weight(const double *weights, int64_t n)
{
    double total = 0.0;
    if (!weights)
        return (double)n;
    for (int64_t i = 0; i < n; i++)
        total += weights[i];
    return total;
}

/* 2 atan(exp x) − π/2 on |x| ≤ 1: x times a polynomial in x², interpolated at Chebyshev's points, exact to 4e-11. */
static inline double gudermannian(double x)
{
    double t = x * x;
    double p = -9.554701734152906e-05 + t * 1.2991205139027545e-05;
    p = 0.0038080370183070458 + t * (-0.001239229264277943 + t * (0.00038493102537932395 + t * p));
    return x * (0.9999999999646467
                + t * (-0.16666666092665236 + t * (0.04166651186402006 + t * (-0.012101550603578787 + t * p))));
}

/* Its derivative cos ψ at the value ψ, to five digits, which is plenty for Newton's method. */
static inline double gudermannian_slope(double psi)
{
    double u = psi * psi;
    return 1.0 - u * (0.5 - u * (1.0 / 24.0 - u * (1.0 / 720.0)));
}

/* The same on |x| ≤ SMALL, several at once, exact to 3e-12 of x; and the derivative, from x², to 7e-7. */
static inline lanes small_gudermannian(lanes x, lanes t)
{
    lanes p = 0.04166643759468266 + t * (-0.012092852290288648 + t * 0.0036257142084650694);
    return x * (0.9999999999977743 + t * (-0.16666666488311724 + t * p));
}

/* Its slope 1/cosh x as a polynomial in t = x². */
static inline lanes small_gudermannian_slope(lanes t)
{
    return 0.9999993813775935 + t * (-0.49982096279404414 + t * 0.20061923003631818);
}

/* 1 − χ(x), χ(1 − χ) and χ(1 − χ)(2χ − 1) for χ(x) = x²/(1 + x²): χ and its slopes in log s. */
static inline struct sums geman(double x)
{
    double rest = 1.0 / (1.0 + x * x), steep = rest - rest * rest;
    return (struct sums){rest, steep, steep * (1.0 - 2.0 * rest)};
}

/* ψ(x) = x − x³/6 on |x| ≤ √2, constant beyond, and ψ′. */
static inline struct sums polynomial(double x)
{
    double inside = clip(x, -SQRT2, SQRT2), square = inside * inside;
    return (struct sums){inside * (1.0 - square * SIXTH), 1.0 - 0.5 * square, 0.0};
}

/* ψ(x) = 2 atan(exp x) − π/2 and ψ′ with x clipped to [−1, 1], and how much was clipped. */
static inline struct sums clipped_gudermannian(double x)
{
    double inside = clip(x, -1.0, 1.0), psi = gudermannian(inside);
    return (struct sums){psi, gudermannian_slope(psi), fabs(x - inside)};
}

#define TEMPLATE "m_estimates.inc"
#include "each_real.h"
#include "resistant.inc"

#define LEAST_SD 1e-140 /* below it squares may have vanished */

/* M-estimate of one row of values, whose scale is guessed on entry and found on return, and which starts at an offset
   from the mean; returns false where squares or reaches leave the range of numbers, which takes more care. */
static bool m_centre(const double *values, int64_t n, const double *weights, double mass, bool by_m_scale, double widen,
                     int psi, double *scale, double *offset, double *centre)
{
    struct sums first = run_sum_f64(values, weights, 0, n, 0.0, false);
    double mean = first.level / first.slope;
    double sd = sqrt(run_sum_f64(values, weights, 0, n, mean, true).level / first.slope);
    if (sd == 0.0 && smallest_f64(values, n) == largest_f64(values, n)) {
        *centre = mean, *scale = *offset = 0.0;
        return true;
    }
    if (!(LEAST_SD < sd && sd < INFINITY))
        return false;
    if (by_m_scale) {
        double near = 0.0 < *scale && *scale < INFINITY ? *scale : sd;
        double found = m_scale_f64(values, n, weights, mass, mean, near, sd);
        *scale = found > VANISHED * sd ? found : sd;
    } else
        *scale = sd;
    bool flat = false;
    *centre = m_estimate_f64(values, n, weights, mass, mean + *offset, widen * *scale, psi, &flat);
    *offset = *centre - mean;
    return !flat && isfinite(*centre);
}

/* M-estimates of the partial derivatives of columns first .. first + width − 1, `height` of them at a time in `tile`:
   few enough to stay in a cache from the first sum to the last. The scales (guesses on entry) and the offsets of the
   estimates from the means are where the next call starts. plain is false where a column takes more care. */
EXPORT int m_gradient(const double *X, int64_t n, int64_t d, const double *slopes, const double *centre,
                      const double *inverse_scale, const double *weights, int64_t first, int64_t width, int by_m_scale,
                      double widen, int psi, double *tile, int64_t height, double *scales, double *offsets,
                      double *gradient, bool *plain)
{
    double mass = total_weight(weights, n);
    *plain = true;
    for (int64_t from = 0; from < width && *plain; from += height) {
        int64_t columns = shorter(height, width - from);
        fill_partials(X, n, d, slopes, centre, inverse_scale, first + from, columns, tile);
        for (int64_t j = 0; j < columns && *plain; j++)
            *plain = m_centre(tile + j * n, n, weights, mass, by_m_scale, widen, psi, scales + from + j,
                              offsets + from + j, gradient + from + j);
    }
    return DONE;
}
