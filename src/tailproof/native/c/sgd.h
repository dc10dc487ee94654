/* What one pass of SGD over a block of rows needs to know, whatever the rows look like.

   All passes work on w in the units of the data and see centred features z = x − centre; gain is the inverse
   square of each column's scale, so that a step of size α in scaled coordinates is w −= α · slope · gain · z. */
#ifndef TAILPROOF_SGD_H
#define TAILPROOF_SGD_H

#include "losses.h"

/* What all passes over the same rows share; laid out as tailproof.native.sgd says, which has checked it. */
struct problem {
    const void *values, *indices, *indptr; /* of CSR rows; dense rows have values alone */
    int64_t n, d, entries;
    const double *y, *weights; /* of every row; no weights where NULL */
    const double *centre, *gain;
    double c, intercept;       /* parameter of the loss; 1, or 0 where there is no intercept */
    int32_t code, implicit;    /* of the loss; proximal steps instead of gradient steps */
};

struct objective {
    const double *y, *weights;
    const double *steps;       /* of every update, or one for all of them */
    int64_t n_steps;
    int code;
    double c;
    bool implicit;
    double intercept;
};

/* What a step needs to know of the problem, with step sizes. */
static inline struct objective objective_of(const struct problem *of, const double *steps, int64_t n_steps)
{
    return (struct objective){of->y, of->weights, steps, n_steps, of->code, of->c, of->implicit, of->intercept};
}

/* α_t; the last one given, from there on. */
static inline double step_size(const struct objective *f, int64_t t)
{
    return f->steps[t < f->n_steps ? t : f->n_steps - 1];
}

/* Weight of row i: 1 where there are none. */
static inline double weight_of(const struct objective *f, int64_t i) { return f->weights ? f->weights[i] : 1.0; }

/* The same for losses other than the squared one; apart, so that what is called for every row stays short. */
static double move_of_other(const struct objective *f, double reach, double p, double y, double q)
{
    return reach * (f->implicit ? implicit_slope(f->code, f->c, p, y, reach * q) : loss_slope(f->code, f->c, p, y));
}

/* Slope at row i with score p and squared norm q, or at the end of a proximal step, times the step size. */
static inline double move_of(const struct objective *f, int64_t t, int64_t i, double p, double q)
{
    double reach = step_size(f, t) * weight_of(f, i);
    if (f->code != SQUARED)
        return move_of_other(f, reach, p, f->y[i], q);
    /* Divided before the score is known, which everything else waits for. */
    return (p - f->y[i]) * (f->implicit ? reach / (1.0 + reach * q) : reach);
}

/* Slopes in every output: softmax, one against the rest, or the one output; false where y is no class. */
static inline bool slopes_of(const struct objective *f, const double *scores, int64_t outputs, double reach, double y,
                             double *slopes)
{
    if (outputs > 1 && !(y >= 0.0 && y < (double)outputs))
        return false;
    if (f->code == SOFTMAX) {
        softmax_slopes(scores, outputs, (int64_t)y, slopes);
        /* ½ bounds the curvature of softmax: a safe linearisation of the proximal step. */
        for (int64_t o = 0; o < (f->implicit ? outputs : 0); o++)
            slopes[o] /= 1.0 + 0.5 * reach;
        return true;
    }
    for (int64_t o = 0; o < outputs; o++) {
        double target = outputs == 1 ? y : (o == (int64_t)y ? 1.0 : -1.0);
        slopes[o] = f->implicit ? implicit_slope(f->code, f->c, scores[o], target, reach)
                                : loss_slope(f->code, f->c, scores[o], target);
    }
    return true;
}

#endif
