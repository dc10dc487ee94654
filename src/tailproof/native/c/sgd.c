/* One pass of projected SGD (equation sgd_defn) over one block of rows.

   Serial, without random numbers: threads run several at once, and the order of the rows comes in as an argument.
   Short kernels serve the common cases; general_pass serves everything. */
#include "lanes.h"
#include "sgd.h"
#include "sets.h"

#define AHEAD 6     /* rows ahead of the current ones that are fetched from memory, since they come in random order */
#define FETCHED 128 /* columns up to which that is done at once; longer rows are fetched while those before are read */
#define SHORT 64    /* columns up to which a pass waits for its scores longer than for its rows */
#define TINY 1e-300         /* instead of a weight of zero, whose logarithm no step could change */
#define MISSING (-1.0) /* instead of a squared norm */

/* Loads a row of any type as doubles; returns Σ gain z². */
typedef double (*load_row)(const struct problem *from, int64_t i, const double *centre, const double *gain, double *z);

struct limits {
    int64_t batch;
    double l1, l2;
    int set_code;
    double first, second;
    int rule;        /* what is done with a gradient, by the codes of tailproof.core.rules */
    double strength; /* its number: clipping level, p, or the share of gradients before */
    double *memory;  /* its numbers beyond that; NULL where there are none */
};

/* Where the j-th number of two arrays is that lie side by side, WIDTH numbers of one, then of the other, and how long
   each of them is. Long arrays whose places differ by a power of two would drive each other out of the cache. */
#define SIDE_BY_SIDE(j) (2 * ((j) - (j) % WIDTH) + (j) % WIDTH)
#define PADDED(d) (((d) + WIDTH - 1) / WIDTH * WIDTH)

/* What dense passes work on: centre and gain of the columns, and four numbers a column for every walk. */
struct workspace {
    double *memory, *columns, *walks;
};

enum rule { GRADIENT = 0, CLIPPED, MIRROR, ENTROPY, MOMENTUM, TRUNCATED };

/* (steps − g(steps))/decay; by its series where that would lose all digits. */
static double beyond(double steps, double decay, double reach)
{
    if (steps * decay < 1e-5)
        return 0.5 * steps * (steps + 1.0) * (1.0 - decay * (steps + 2.0) / 3.0);
    return (steps - reach) / decay;
}

/* Take |w| to (|w| − cut)/(1 + decay), not below 0, so many times; the values on the way go to the total.

   With g(s) = (1 − (1 + decay)^−s)/decay they are |w| − g(s)(decay |w| + cut), and their sum has a formula. */
static void shrink(double *w, double *total, int64_t times, double cut, double decay)
{
    double size = fabs(*w), sign = copysign(1.0, *w), rate = log1p(decay), steps = (double)times;
    if (times == 0 || size == 0.0)
        return;
    if (cut > 0.0) { /* how many until zero */
        double last = rate > 0.0 ? log1p(decay * size / cut) / rate : size / cut;
        steps = at_most(floor(last), steps);
    }
    double reach = rate > 0.0 ? -expm1(-steps * rate) / decay : steps;
    *total += sign * (size * reach - cut * beyond(steps, decay, reach));
    *w = steps == (double)times ? sign * at_least(size - reach * (decay * size + cut), 0.0) : 0.0;
}

/* The same for the coefficients of feature j in every output. */
static void shrink_feature(double *W, double *totals, int64_t j, int64_t outputs, int64_t times, double cut,
                           double decay)
{
    for (int64_t o = 0; o < outputs; o++)
        shrink(W + j * outputs + o, totals + j * outputs + o, times, cut, decay);
}

static double dot(const double *RESTRICT w, const double *RESTRICT z, int64_t d)
{
    double p = 0.0;
    SUM(p)
    for (int64_t j = 0; j < d; j++)
        p += w[j] * z[j];
    return p;
}

/* Scores ⟨w, z⟩ + b of every output, four at a time: sums of one do not wait for those of the others. */
static void score_outputs(const double *RESTRICT W, const double *RESTRICT b, const double *RESTRICT z,
                          int64_t outputs, int64_t d, double *RESTRICT scores)
{
    int64_t o = 0;
    for (; o + 4 <= outputs; o += 4) {
        const double *w = W + o * d, *w1 = w + d, *w2 = w1 + d, *w3 = w2 + d;
        double p = 0.0, p1 = 0.0, p2 = 0.0, p3 = 0.0;
        SUM(p, p1, p2, p3)
        for (int64_t j = 0; j < d; j++) {
            p += w[j] * z[j];
            p1 += w1[j] * z[j];
            p2 += w2[j] * z[j];
            p3 += w3[j] * z[j];
        }
        scores[o] = p + b[o];
        scores[o + 1] = p1 + b[o + 1];
        scores[o + 2] = p2 + b[o + 2];
        scores[o + 3] = p3 + b[o + 3];
    }
    for (; o < outputs; o++)
        scores[o] = dot(W + o * d, z, d) + b[o];
}

/* W −= α slope gain z in every output; the path of W is summed. */
static void step_outputs(double *RESTRICT W, double *RESTRICT sum_W, const double *RESTRICT slopes,
                         const double *RESTRICT z, const double *RESTRICT gain, int64_t outputs, int64_t d,
                         double alpha)
{
    for (int64_t o = 0; o < outputs; o++) {
        double *w = W + o * d, *sum_w = sum_W + o * d, move = alpha * slopes[o];
        INDEPENDENT
        for (int64_t j = 0; j < d; j++) {
            double moved = w[j] - move * z[j] * gain[j];
            w[j] = moved;
            sum_w[j] += moved;
        }
    }
}

/* gradient += share slope gain z in every output. */
static void add_gradient(double *RESTRICT gradient, const double *RESTRICT slopes, const double *RESTRICT z,
                         const double *RESTRICT gain, int64_t outputs, int64_t d, double share)
{
    for (int64_t o = 0; o < outputs; o++) {
        double *g = gradient + o * d, pull = share * slopes[o];
        INDEPENDENT
        for (int64_t j = 0; j < d; j++)
            g[j] += pull * z[j] * gain[j];
    }
}

/* Gradient step, proximal step of the penalties in the metric of the gains, projection. */
static void finish_step(double *RESTRICT W, double *RESTRICT sum_W, double *RESTRICT gradient,
                        const double *RESTRICT gain, int64_t outputs, int64_t d, double alpha,
                        const struct limits *limits)
{
    for (int64_t o = 0; o < outputs; o++) {
        double *w = W + o * d, *g = gradient + o * d;
        INDEPENDENT
        for (int64_t j = 0; j < d; j++) {
            double moved = w[j] - alpha * g[j];
            double size = at_least(fabs(moved) - alpha * limits->l1 * gain[j], 0.0);
            w[j] = copysign(size, moved) / (1.0 + alpha * limits->l2 * gain[j]);
            g[j] = 0.0;
        }
    }
    project(limits->set_code, limits->first, limits->second, W, outputs * d);
    INDEPENDENT
    for (int64_t j = 0; j < outputs * d; j++)
        sum_W[j] += W[j];
}

/* Bring a gradient that is longer than the level, in scaled coordinates, down to it; gradient has gains in it. */
static void clip_gradient(double *RESTRICT gradient, double *RESTRICT gradient_b, const double *RESTRICT gain,
                          int64_t outputs, int64_t d, double level)
{
    double square = 0.0;
    for (int64_t o = 0; o < outputs; o++) {
        const double *g = gradient + o * d;
        square += gradient_b[o] * gradient_b[o];
        SUM(square)
        for (int64_t j = 0; j < d; j++)
            square += g[j] * g[j] / gain[j];
    }
    double factor = square > level * level ? level / sqrt(square) : 1.0;
    for (int64_t j = 0; factor < 1.0 && j < outputs * d; j++)
        gradient[j] *= factor;
    for (int64_t o = 0; factor < 1.0 && o < outputs; o++)
        gradient_b[o] *= factor;
}

/* Momentum: v ← βv + (1 − β)g, which memory keeps from pass to pass, takes the place of the gradient g. */
static void add_momentum(double *RESTRICT gradient, double *RESTRICT v, int64_t n, double beta)
{
    INDEPENDENT
    for (int64_t j = 0; j < n; j++) {
        v[j] = beta * v[j] + (1.0 - beta) * gradient[j];
        gradient[j] = v[j];
    }
}

/* ‖x/√gain − from‖_p, relative to the largest entry, since powers overflow. */
static double distance(const double *x, const double *gain, const double *from, int64_t n, int64_t d, double p)
{
    double largest = 0.0, total = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double gap = fabs(x[j] / sqrt(gain[j % d]) - from[j]);
        if (!(gap <= largest)) /* negated, so that NaN propagates */
            largest = gap;
    }
    for (int64_t j = 0; largest > 0.0 && j < n; j++)
        total += pow(fabs(x[j] / sqrt(gain[j % d]) - from[j]) / largest, p);
    return largest > 0.0 ? largest * pow(total, 1.0 / p) : largest;
}

/* Truncation of robust mirror descent (Juditsky et al., 2019): a gradient farther from the anchor than
   level + L‖u − u₀‖_p, in the dual norm, gives way to the anchor. In memory: level, L, anchor, u₀, each of the two
   with its intercepts last. One that is not finite stays as it is: it must not be hidden. */
static void truncate_gradient(double *gradient, double *gradient_b, const double *W, const double *b,
                              const double *gain, int64_t outputs, int64_t d, const struct limits *limits)
{
    int64_t n = outputs * d;
    const double *anchor = limits->memory + 2, *start = anchor + n + outputs, p = limits->strength;
    double gap = distance(gradient, gain, anchor, n, d, p / (p - 1.0)), way = distance(W, gain, start, n, d, p);
    for (int64_t o = 0; o < outputs; o++) {
        gap = hypot(gap, gradient_b[o] - anchor[n + o]);
        way = hypot(way, b[o] - start[n + o]);
    }
    if (!(gap > limits->memory[0] + limits->memory[1] * way) || isinf(gap))
        return;
    for (int64_t j = 0; j < n; j++)
        gradient[j] = anchor[j] * sqrt(gain[j % d]);
    memcpy(gradient_b, anchor + n, (size_t)outputs * sizeof *gradient_b);
}

/* to = ∇(½‖·‖²_p) at from: sign(v)|v|^(p−1) ‖v‖_p^(2−p); relative to the largest entry, since powers overflow. */
static void norm_gradient(const double *from, double *to, int64_t n, double p)
{
    double largest = 0.0, total = 0.0;
    for (int64_t j = 0; j < n; j++)
        if (!(fabs(from[j]) <= largest)) /* negated, so that NaN propagates */
            largest = fabs(from[j]);
    for (int64_t j = 0; j < n; j++)
        total += largest > 0.0 ? pow(fabs(from[j]) / largest, p) : 0.0;
    double norm = pow(total, (2.0 - p) / p);
    for (int64_t j = 0; j < n; j++)
        to[j] = largest == 0.0 ? 0.0 : copysign(largest * pow(fabs(from[j]) / largest, p - 1.0) * norm, from[j]);
}

/* From W to the dual point of mirror descent in the p-norm of scaled coordinates u = w/√gain, or back. */
static void to_dual(const double *W, const double *gain, int64_t outputs, int64_t d, double p, double *dual)
{
    for (int64_t j = 0; j < outputs * d; j++)
        dual[j] = W[j] / sqrt(gain[j % d]);
    norm_gradient(dual, dual, outputs * d, p);
}

static void to_primal(const double *dual, const double *gain, int64_t outputs, int64_t d, double p, double *W)
{
    norm_gradient(dual, W, outputs * d, p / (p - 1.0));
    for (int64_t j = 0; j < outputs * d; j++)
        W[j] *= sqrt(gain[j % d]);
}

/* One step of mirror descent with Φ = ½‖·‖²_p (equation smd_defn), then the projection. */
static void mirror_step(double *W, double *sum_W, double *gradient, double *dual, const double *gain,
                        int64_t outputs, int64_t d, double alpha, const struct limits *limits)
{
    for (int64_t j = 0; j < outputs * d; j++) {
        dual[j] -= alpha * gradient[j] / sqrt(gain[j % d]);
        gradient[j] = 0.0;
    }
    to_primal(dual, gain, outputs, d, limits->strength, W);
    if (limits->set_code != NONE) {
        project(limits->set_code, limits->first, limits->second, W, outputs * d);
        to_dual(W, gain, outputs, d, limits->strength, dual);
    }
    for (int64_t j = 0; j < outputs * d; j++)
        sum_W[j] += W[j];
}

/* One step of mirror descent with the entropy on the simplex: w ∝ w exp(−α g), of the same total.

   In logarithms, the dual point: a weight that has become tiny can grow again. */
static void entropy_step(double *W, double *sum_W, double *gradient, double *dual, int64_t n, double alpha,
                         double total)
{
    double largest = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        dual[j] -= alpha * gradient[j];
        largest = dual[j] > largest ? dual[j] : largest;
        gradient[j] = 0.0;
    }
    for (int64_t j = 0; j < n; j++) {
        dual[j] -= largest;
        W[j] = exp(dual[j]);
        sum += W[j];
    }
    for (int64_t j = 0; j < n; j++) {
        W[j] *= total / sum;
        sum_W[j] += W[j];
    }
}

/* Any rows, outputs, mini-batches, penalties and constraints; work has room for z, slopes, scores and gradients. */
static int run_updates(const struct problem *from, load_row load, const struct objective *f, const int64_t *rows,
                       int64_t m, double *W, double *b, double *mean_W, double *mean_b, int64_t outputs,
                       const struct limits *limits, double *work)
{
    const double *centre = from->centre, *gain = from->gain;
    int64_t d = from->d, batch = limits->batch, updates = (m + batch - 1) / batch;
    double *z = work, *slopes = z + d, *scores = slopes + outputs, *gradient_b = scores + outputs;
    double *gradient = gradient_b + outputs, *dual = gradient + outputs * d;
    bool mirrored = limits->rule == MIRROR || (limits->rule == TRUNCATED && limits->strength < 2.0);
    if (mirrored)
        to_dual(W, gain, outputs, d, limits->strength, dual);
    for (int64_t j = 0; limits->rule == ENTROPY && j < outputs * d; j++)
        dual[j] = log(at_least(W[j], TINY));
    bool plain = limits->rule == GRADIENT && batch == 1 && limits->l1 == 0.0 && limits->l2 == 0.0 && limits->set_code == NONE;
    for (int64_t t = 0; t < updates; t++) {
        double alpha = step_size(f, t);
        int64_t start = t * batch, stop = shorter(start + batch, m);
        for (int64_t position = start; position < stop; position++) {
            int64_t i = rows[position];
            double weight = weight_of(f, i), share = weight / (double)(stop - start);
            double q = load(from, i, centre, gain, z);
            if (q == MISSING)
                return BAD_ENTRY;
            score_outputs(W, b, z, outputs, d, scores);
            if (!slopes_of(f, scores, outputs, (q + f->intercept) * alpha * weight, f->y[i], slopes))
                return BAD_CLASS;
            if (plain)
                step_outputs(W, mean_W, slopes, z, gain, outputs, d, alpha * share);
            else
                add_gradient(gradient, slopes, z, gain, outputs, d, share);
            for (int64_t o = 0; o < outputs; o++)
                gradient_b[o] += share * slopes[o] * f->intercept;
        }
        if (limits->rule == CLIPPED)
            clip_gradient(gradient, gradient_b, gain, outputs, d, limits->strength);
        if (limits->rule == TRUNCATED)
            truncate_gradient(gradient, gradient_b, W, b, gain, outputs, d, limits);
        if (limits->rule == MOMENTUM) {
            add_momentum(gradient, limits->memory, outputs * d, limits->strength);
            add_momentum(gradient_b, limits->memory + outputs * d, outputs, limits->strength);
        }
        for (int64_t o = 0; o < outputs; o++) {
            b[o] -= alpha * gradient_b[o];
            mean_b[o] += b[o];
            gradient_b[o] = 0.0;
        }
        if (mirrored)
            mirror_step(W, mean_W, gradient, dual, gain, outputs, d, alpha, limits);
        else if (limits->rule == ENTROPY)
            entropy_step(W, mean_W, gradient, dual, outputs * d, alpha, limits->first);
        else if (!plain)
            finish_step(W, mean_W, gradient, gain, outputs, d, alpha, limits);
    }
    for (int64_t j = 0; j < outputs * d; j++)
        mean_W[j] /= (double)updates;
    for (int64_t o = 0; o < outputs; o++)
        mean_b[o] /= (double)updates;
    return DONE;
}

/* One pass by the rule and within the limits, for any kind of rows: w −= step · slope · gain · z, then penalties and the
   projection. */
static int general_pass(const struct problem *from, load_row load, const struct objective *f, const int64_t *rows,
                        int64_t m, double *W, double *b, double *mean_W, double *mean_b, int64_t outputs,
                        const struct limits *limits)
{
    if (!rows_exist(rows, m, from->n))
        return BAD_ROW;
    double *work = calloc((size_t)(from->d * (1 + 2 * outputs) + 3 * outputs), sizeof *work);
    if (work == NULL)
        return NO_MEMORY;
    memset(mean_W, 0, (size_t)(outputs * from->d) * sizeof *mean_W);
    memset(mean_b, 0, (size_t)outputs * sizeof *mean_b);
    int status = run_updates(from, load, f, rows, m, W, b, mean_W, mean_b, outputs, limits, work);
    free(work);
    return status;
}

/* Room for some walks, from the beginning of a line of the cache on; false where there is no memory for it. */
static bool open_workspace(struct workspace *room, const struct problem *of, int64_t walks)
{
    int64_t length = PADDED(of->d), line = IN_A_LINE(double);
    room->memory = malloc((size_t)((2 + 4 * walks) * length + line) * sizeof *room->memory);
    if (room->memory == NULL)
        return false;
    room->columns = room->memory + (line - (int64_t)((uintptr_t)room->memory / sizeof(double)) % line) % line;
    room->walks = room->columns + 2 * length;
    for (int64_t j = 0; j < of->d; j++) {
        room->columns[SIDE_BY_SIDE(j)] = of->centre[j];
        room->columns[SIDE_BY_SIDE(j) + WIDTH] = of->gain[j];
    }
    return true;
}

#define TEMPLATE "sgd_dense.inc"
#include "each_real.h"
#define TEMPLATE "sgd_csr.inc"
#include "each_csr.h"
