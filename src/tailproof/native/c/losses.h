/* Losses ℓ(p, y) of a linear prediction p, by the codes of tailproof.core.losses; c is the loss's parameter.

   A new loss is a code here and in tailproof.core.losses, a branch in loss_value and loss_slope, and one in
   implicit_slope, or in loss_curvature (losses.c) if its proximal step has no formula. */
#ifndef TAILPROOF_LOSSES_H
#define TAILPROOF_LOSSES_H

#include "common.h"

enum loss_code {
    SQUARED = 0, HUBER, ABSOLUTE, PINBALL, POISSON, GAMMA, TWEEDIE,
    LOG = 10, HINGE, SQUARED_HINGE, MODIFIED_HUBER, SOFTMAX,
};

/* The s with s = ℓ′(p − r s), for losses without a formula for it (losses.c). */
double solve_implicit(int code, double c, double p, double y, double r);

/* softmax(p) − e_label (losses.c). */
void softmax_slopes(const double *p, int64_t classes, int64_t label, double *slopes);

/* y exp((1 − c)p), and 0 for y = 0 even where the exponential overflows. */
static inline double tilted(double c, double p, double y) { return y != 0.0 ? y * exp((1.0 - c) * p) : 0.0; }

/* ℓ(p, y). */
static inline double loss_value(int code, double c, double p, double y)
{
    double margin = y * p, r = fabs(p - y), lacking = at_least(1.0 - margin, 0.0);
    switch (code) {
    case SQUARED: return 0.5 * (p - y) * (p - y);
    case HUBER: return r <= c ? 0.5 * r * r : c * (r - 0.5 * c);
    case ABSOLUTE: return r;
    case PINBALL: return y > p ? c * (y - p) : (1.0 - c) * (p - y);
    case POISSON: return exp(p) - y * p;
    case GAMMA: return p + y * exp(-p);
    case TWEEDIE: return exp((2.0 - c) * p) / (2.0 - c) - tilted(c, p, y) / (1.0 - c);
    case LOG: return margin > 0.0 ? log1p(exp(-margin)) : -margin + log1p(exp(margin));
    case HINGE: return lacking;
    case SQUARED_HINGE: return lacking * lacking;
    default: return margin >= -1.0 ? lacking * lacking : -4.0 * margin; /* modified Huber */
    }
}

/* ∂ℓ/∂p, a subgradient where there is a kink. */
static inline double loss_slope(int code, double c, double p, double y)
{
    double margin = y * p;
    switch (code) {
    case SQUARED: return p - y;
    case HUBER: return clip(p - y, -c, c);
    case ABSOLUTE: return sign_of(p - y);
    case PINBALL: return p > y ? 1.0 - c : (p < y ? -c : 0.0);
    case POISSON: return exp(p) - y;
    case GAMMA: return 1.0 - y * exp(-p);
    case TWEEDIE: return exp((2.0 - c) * p) - tilted(c, p, y);
    case LOG: return -y * (margin > 0.0 ? exp(-margin) / (1.0 + exp(-margin)) : 1.0 / (1.0 + exp(margin)));
    case HINGE: return margin >= 1.0 ? 0.0 : -y;
    case SQUARED_HINGE: return margin >= 1.0 ? 0.0 : -2.0 * y * (1.0 - margin);
    default: return margin >= 1.0 ? 0.0 : (margin >= -1.0 ? -2.0 * y * (1.0 - margin) : -4.0 * y);
    }
}

/* The s with s = ℓ′(p − r s): the slope where a proximal step of length r ends. */
static inline double implicit_slope(int code, double c, double p, double y, double r)
{
    if (code == SQUARED)
        return (p - y) / (1.0 + r);
    if (r <= 0.0)
        return loss_slope(code, c, p, y);
    double lacking = at_least(1.0 - y * p, 0.0);
    switch (code) {
    case HUBER: return clip((p - y) / (1.0 + r), -c, c);
    case ABSOLUTE: return clip((p - y) / r, -1.0, 1.0);
    case PINBALL: return clip((p - y) / r, -c, 1.0 - c);
    case HINGE: return -y * at_most(lacking / r, 1.0);
    case SQUARED_HINGE: return -y * 2.0 * lacking / (1.0 + 2.0 * r);
    case MODIFIED_HUBER: return -y * at_most(2.0 * lacking / (1.0 + 2.0 * r), 4.0);
    default: return solve_implicit(code, c, p, y, r);
    }
}

#endif
