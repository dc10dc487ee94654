/* Exact Euclidean projections. */
#include "sets.h"

/* ‖w‖₂ relative to the largest entry: squares may overflow. */
static double norm_of(const double *w, int64_t n)
{
    double largest = 0.0, total = 0.0;
    for (int64_t j = 0; j < n; j++)
        if (!(fabs(w[j]) <= largest)) /* negated, so that NaN propagates */
            largest = fabs(w[j]);
    for (int64_t j = 0; j < (largest > 0.0 ? n : 0); j++)
        total += (w[j] / largest) * (w[j] / largest);
    return largest * sqrt(total);
}

/* wⱼ or |wⱼ|. */
static double entry(const double *w, int64_t j, bool absolute) { return absolute ? fabs(w[j]) : w[j]; }

/* The τ with Σ max(wⱼ − τ, 0) = total, or the same of |wⱼ|: the largest entries share what is over.

   By Michelot's rounds: entries below the τ of all that are left drop out, until none does. */
static double simplex_threshold(const double *w, int64_t n, double total, bool absolute)
{
    double threshold = -INFINITY;
    for (int64_t left = n + 1;;) {
        double over = -total;
        int64_t count = 0;
        for (int64_t j = 0; j < n; j++)
            if (!(entry(w, j, absolute) <= threshold)) {
                over += entry(w, j, absolute);
                count++;
            }
        if (count == 0 || count == left)
            return threshold;
        threshold = over / (double)count;
        left = count;
    }
}

/* w · min(1, radius/‖w‖₂). */
static void project_ball(double radius, double *w, int64_t n)
{
    double norm = norm_of(w, n);
    for (int64_t j = 0; j < (norm > radius ? n : 0); j++)
        w[j] *= radius / norm;
}

/* sign(w) (|w| − θ)₊, with the θ ≥ 0 that makes the sum of the |w| the radius; w itself where it is no larger. */
static void project_l1_ball(double radius, double *w, int64_t n)
{
    double total = 0.0;
    for (int64_t j = 0; j < n; j++)
        total += fabs(w[j]);
    if (!(total > radius))
        return;
    double threshold = simplex_threshold(w, n, radius, true);
    for (int64_t j = 0; j < n; j++)
        w[j] = sign_of(w[j]) * at_least(fabs(w[j]) - threshold, 0.0);
}

/* (w − θ)₊, with the θ that makes their sum the total. */
static void project_simplex(double total, double *w, int64_t n)
{
    double threshold = simplex_threshold(w, n, total, false);
    for (int64_t j = 0; j < n; j++)
        w[j] = at_least(w[j] - threshold, 0.0);
}

/* The nearest point of a set, by its code and two numbers. */
EXPORT int project(int code, double first, double second, double *w, int64_t n)
{
    if (code == BALL)
        project_ball(first, w, n);
    else if (code == BOX)
        for (int64_t j = 0; j < n; j++)
            w[j] = clip(w[j], first, second);
    else if (code == L1_BALL)
        project_l1_ball(first, w, n);
    else if (code == SIMPLEX)
        project_simplex(first, w, n);
    return DONE;
}
