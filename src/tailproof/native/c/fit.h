/* One fit with a level of truncation and shares of the rows: how the rows pull at it, and how far to go along a step. Of
   few rows a column a whole step overshoots, since it changes which rows are truncated. */
#ifndef TAILPROOF_FIT_H
#define TAILPROOF_FIT_H

#include "common.h"

#define ROUNDS 8   /* of a search along a step */
#define CLOSE 0.05 /* of the slope at its start: what may be left of it */
#define LEAST 0.05 /* share of what is known to contain the best length, at which secants may look */

/* One fit: residuals, their change by a whole step, and the shares of the rows. */
typedef struct {
    int64_t n;
    double tau, inverse; /* the second is 1/τ² */
    bool tukey;
    const double *r, *change, *shares;
} fit;

/* ψ and its slope, each without a branch in the loops that call them. */
INLINED double psi_of(bool tukey, double tau, double inverse, double r)
{
    double u = at_least(1.0 - r * r * inverse, 0.0);
    return tukey ? r * u * u : clip(r, -tau, tau);
}

/* ψ′(r), at least the floor: u(5u − 4), u = (1 − r²/τ²)₊, for Tukey's ψ; for Huber's 1 up to τ. */
INLINED double slope_of(bool tukey, double tau, double inverse, double r, double floor)
{
    double u = at_least(1.0 - r * r * inverse, 0.0);
    return tukey ? at_least(u * (5.0 * u - 4.0), floor) : fabs(r) <= tau ? 1.0 : floor;
}

/* Shares times ψ and ψ′ of every row. */
INLINED void pulls(const fit *own, bool tukey, double floor, double *RESTRICT pull, double *RESTRICT curvature)
{
    const double *RESTRICT r = own->r, *RESTRICT shares = own->shares;
    double tau = own->tau, inverse = own->inverse;
    INDEPENDENT
    for (int64_t i = 0; i < own->n; i++) {
        pull[i] = shares[i] * psi_of(tukey, tau, inverse, r[i]);
        curvature[i] = shares[i] * slope_of(tukey, tau, inverse, r[i], floor);
    }
}

/* Σ wρ(r): ρ(r) = ψ(r − ψ/2) for Huber's ψ, and τ²(1 − u³)/6 for Tukey's. */
INLINED double loss_of(const fit *own, bool tukey)
{
    const double *RESTRICT r = own->r, *RESTRICT shares = own->shares;
    double sum = 0.0, tau = own->tau, inverse = own->inverse, most = tukey ? tau * tau / 6.0 : 0.0;
    SUM(sum)
    for (int64_t i = 0; i < own->n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0), inside = clip(r[i], -tau, tau);
        sum += shares[i] * (tukey ? most * (1.0 - u * u * u) : inside * (r[i] - 0.5 * inside));
    }
    return sum;
}

/* Σ wcψ(r − length c), c being the change of a row and w its share. */
INLINED double pull_along(const fit *own, bool tukey, double length)
{
    const double *RESTRICT r = own->r, *RESTRICT change = own->change, *RESTRICT shares = own->shares;
    double sum = 0.0, tau = own->tau, inverse = own->inverse;
    SUM(sum)
    for (int64_t i = 0; i < own->n; i++)
        sum += shares[i] * change[i] * psi_of(tukey, tau, inverse, r[i] - length * change[i]);
    return sum;
}

/* Derivative of the penalised mean loss at a share of the step; the penalty's is first + length · second. */
static inline double slope_at(const fit *own, double length, double first, double second)
{
    double pull = own->tukey ? pull_along(own, true, length) : pull_along(own, false, length);
    return first + length * second - pull;
}

/* The share of a step, at most all of it, at which the loss falls no further: by secants and halving. */
static inline double best_length(const fit *own, double first, double second)
{
    double low = 0.0, high = 1.0, length = 1.0;
    double falling = slope_at(own, low, first, second);
    double rising = slope_at(own, high, first, second), enough = CLOSE * fabs(falling);
    if (!(falling < 0.0 && rising > enough))
        return length;
    for (int number = 0; number < ROUNDS; number++) {
        double share = number % 3 < 2 ? clip(falling / (falling - rising), LEAST, 1.0 - LEAST) : 0.5;
        length = low + share * (high - low);
        double found = slope_at(own, length, first, second);
        if (fabs(found) <= enough)
            break;
        if (found < 0.0)
            low = length, falling = found;
        else
            high = length, rising = found;
    }
    return length;
}

/* Shares times ψ(r) and ψ′(r), at least the floor. */
static inline void pulls_of(const fit *own, double floor, double *pull, double *curvature)
{
    if (own->tukey)
        pulls(own, true, floor, pull, curvature);
    else
        pulls(own, false, floor, pull, curvature);
}

#endif
