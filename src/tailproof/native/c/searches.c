/* Steps of many fits at once, each with a level of truncation and shares of the rows of its own. */
#include "fit.h"

/* One of the fits, whose shares of rows are those of its part. */
static fit fit_of(int64_t m, const double *r, const double *change, const double *shares, const int64_t *part, int64_t n,
                  const double *tau, const double *tukey)
{
    return (fit){n, tau[m], 1.0 / (tau[m] * tau[m]), tukey[m] != 0.0, r + m * n, change + m * n, shares + part[m] * n};
}

/* Shares times ψ(r) and ψ′(r), at least the floor, of every fit (first axis). */
EXPORT int pulls_of_fits(const double *r, const double *shares, int64_t parts, const int64_t *part, int64_t n,
                         const double *tau, const double *tukey, int64_t count, double floor, double *pull,
                         double *curvature)
{
    if (!rows_exist(part, count, parts))
        return BAD_ROW;
    for (int64_t m = 0; m < count; m++) {
        fit own = fit_of(m, r, r, shares, part, n, tau, tukey);
        pulls_of(&own, floor, pull + m * n, curvature + m * n);
    }
    return DONE;
}

/* Shares times ρ(r), summed over rows, of every fit. */
EXPORT int losses_of_fits(const double *r, const double *shares, int64_t parts, const int64_t *part, int64_t n,
                          const double *tau, const double *tukey, int64_t count, double *losses)
{
    if (!rows_exist(part, count, parts))
        return BAD_ROW;
    for (int64_t m = 0; m < count; m++) {
        fit own = fit_of(m, r, r, shares, part, n, tau, tukey);
        losses[m] = own.tukey ? loss_of(&own, true) : loss_of(&own, false);
    }
    return DONE;
}

/* How far every fit goes along its step, given derivatives of its penalty at the start and along the step. */
EXPORT int step_lengths(const double *r, const double *change, const double *shares, int64_t parts, const int64_t *part,
                        int64_t n, const double *tau, const double *tukey, const double *first, const double *second,
                        int64_t count, double *length)
{
    if (!rows_exist(part, count, parts))
        return BAD_ROW;
    for (int64_t m = 0; m < count; m++) {
        fit own = fit_of(m, r, change, shares, part, n, tau, tukey);
        length[m] = best_length(&own, first[m], second[m]);
    }
    return DONE;
}
