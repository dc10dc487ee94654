/* Sums over rows that slopes by an increasing score of the noise need: one reading of the rows. */
#include "common.h"

#define TOGETHER 16 /* rows whose residuals are looked up side by side: as many as registers hold */

/* ψ: linear between `count` increasing knots, constant beyond. */
typedef struct {
    const double *knots, *values;
    int64_t count;
} score;

/* ψ(r) and ψ′(r) of some residuals. To compare each with all knots is quicker than to halve: no branch is missed. */
static void scores_at(const score *psi, const double *RESTRICT r, double *RESTRICT at, double *RESTRICT slopes)
{
    double below[TOGETHER] = {0.0};
    for (int64_t k = 0; k < psi->count; k++) {
        INDEPENDENT
        for (int i = 0; i < TOGETHER; i++)
            below[i] += psi->knots[k] < r[i] ? 1.0 : 0.0;
    }
    for (int i = 0; i < TOGETHER; i++) {
        int64_t end = (int64_t)below[i];
        bool between = 0 < end && end < psi->count;
        const double *knot = psi->knots + (between ? end : 0), *value = psi->values + (between ? end : 0);
        slopes[i] = between ? (value[0] - value[-1]) / (knot[0] - knot[-1]) : 0.0;
        at[i] = between ? value[-1] + slopes[i] * (r[i] - knot[-1]) : psi->values[end ? end - 1 : 0];
        at[i] = r[i] == r[i] ? at[i] : r[i];
    }
}

/* y − z'θ of some rows. */
static void residuals(const double *RESTRICT Z, int64_t n, int64_t width, const double *RESTRICT y,
                      const double *RESTRICT theta, double *RESTRICT rest)
{
    for (int64_t i = 0; i < n; i++, Z += width) {
        double fitted = 0.0;
        SUM(fitted)
        for (int64_t j = 0; j < width; j++)
            fitted += Z[j] * theta[j];
        rest[i] = y[i] - fitted;
    }
}

/* With r = y − z'θ: Σ vψz and Σ vz; Σ v, vψ, vψ′, (vψ)², v²ψ, v²; and with reach h Σ vh and
   Σ h(v((ψ − mean)/information − (y − z'plain)))². */
EXPORT int score_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v, const double *reach,
                      const double *theta, const double *plain, const double *knots, const double *values,
                      int64_t count, double mean, double information, double *RESTRICT sums)
{
    score psi = {knots, values, count};
    double *RESTRICT gradient = sums, *RESTRICT row = sums + width, inverse = 1.0 / information;
    double rest[TOGETHER] = {0.0}, simple[TOGETHER] = {0.0}, at[TOGETHER], slopes[TOGETHER];
    double total = 0.0, pulls = 0.0, steep = 0.0, squares = 0.0, mixed = 0.0, sizes = 0.0, far = 0.0, apart = 0.0;
    memset(sums, 0, (size_t)(2 * width) * sizeof *sums);
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t some = shorter(TOGETHER, n - start);
        residuals(Z, some, width, y + start, theta, rest);
        residuals(Z, some, width, y + start, plain, simple);
        scores_at(&psi, rest, at, slopes);
        for (int64_t i = 0; i < some; i++, Z += width) {
            double weight = v[start + i], h = reach[start + i], pull = weight * at[i];
            double move = weight * ((at[i] - mean) * inverse - simple[i]);
            for (int64_t j = 0; j < width; j++) {
                gradient[j] += pull * Z[j];
                row[j] += weight * Z[j];
            }
            total += weight, pulls += pull, steep += weight * slopes[i];
            squares += pull * pull, mixed += weight * pull, sizes += weight * weight;
            far += weight * h, apart += h * move * move;
        }
    }
    double numbers[] = {total, pulls, steep, squares, mixed, sizes, far, apart};
    memcpy(sums + 2 * width, numbers, sizeof numbers);
    return DONE;
}
