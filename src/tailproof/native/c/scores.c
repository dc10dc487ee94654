/* Sums over rows that slopes by an increasing score of the noise need: one reading of the rows. */
#include "common.h"

#define TOGETHER 256 /* rows at a time: sums leave the registers once for all of them, and no search waits for another */
#define SHORT 8      /* numbers of a row */
#define FEW_KNOTS 8  /* which are counted faster than searched */
#define MOST_BINS 64 /* of residuals that tell a score */

/* ψ: linear between `count` increasing knots, constant beyond. Piece k lies below knot k: there it is
   level[k] + slope[k](r − from[k]), with r not beyond the first and the last knot. */
typedef struct {
    const double *knots;
    int64_t count;
    double *from, *level, *slope;
} score;

/* Some rows: y − z'θ and y − z'plain, weights and reach, which are zero for rows that are not there; ψ and ψ′. */
typedef struct {
    double rest[TOGETHER], simple[TOGETHER], weight[TOGETHER], reach[TOGETHER], pull[TOGETHER], slope[TOGETHER];
} some_rows;

/* Σ v, vψ, vψ′, (vψ)², v²ψ, v², vh and h(v((ψ − mean)/information − (y − z'plain)))². */
typedef struct {
    double total, pulls, steep, squares, mixed, sizes, far, apart;
} numbers;

/* The pieces of ψ, in memory of 3(count + 1) numbers. */
static score pieces(const double *knots, const double *values, int64_t count, double *memory)
{
    score psi = {knots, count, memory, memory + count + 1, memory + 2 * (count + 1)};
    for (int64_t k = 0; k <= count; k++) {
        int64_t before = k ? k - 1 : 0;
        bool between = 0 < k && k < count;
        psi.from[k] = knots[before], psi.level[k] = values[before];
        psi.slope[k] = between ? (values[k] - values[before]) / (knots[k] - knots[before]) : 0.0;
    }
    return psi;
}

/* How many of few knots are below each residual. */
static void count_knots(const score *psi, const double *RESTRICT rest, int64_t *RESTRICT piece)
{
    for (int64_t k = 0; k < psi->count; k++)
        for (int i = 0; i < TOGETHER; i++)
            piece[i] += psi->knots[k] < rest[i];
}

/* The same of many. */
static void search_knots(const score *psi, const double *RESTRICT rest, int64_t *RESTRICT piece)
{
    for (int64_t left = psi->count, half; left > 1; left -= half) {
        half = left / 2;
        for (int i = 0; i < TOGETHER; i++)
            piece[i] += half & -(int64_t)(psi->knots[piece[i] + half - 1] < rest[i]); /* without a branch */
    }
    for (int i = 0; i < TOGETHER; i++)
        piece[i] += psi->knots[piece[i]] < rest[i];
}

/* ψ(r) and ψ′(r) of some residuals. One on a knot belongs to the piece before it, which matters where a score is learned from
   few rows that have knots among them, and not here. */
static void look_up(const score *psi, some_rows *rows)
{
    int64_t piece[TOGETHER] = {0};
    (psi->count <= FEW_KNOTS ? count_knots : search_knots)(psi, rows->rest, piece);
    double low = psi->knots[0], high = psi->knots[psi->count - 1];
    for (int i = 0; i < TOGETHER; i++) {
        double slope = psi->slope[piece[i]];
        rows->slope[i] = slope;
        rows->pull[i] = psi->level[piece[i]] + slope * (clip(rows->rest[i], low, high) - psi->from[piece[i]]);
    }
}

/* Weights of some rows, or ones, and their reach. A call that copies so few numbers takes longer than the loop. */
static void weigh(some_rows *RESTRICT rows, const double *v, const double *reach, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        rows->weight[i] = v ? v[i] : 1.0, rows->reach[i] = reach[i];
}

static void add_numbers(const some_rows *rows, double mean, double inverse, numbers *sums)
{
    double total = 0.0, pulls = 0.0, steep = 0.0, squares = 0.0, mixed = 0.0, sizes = 0.0, far = 0.0, apart = 0.0;
    SUM(total, pulls, steep, squares, mixed, sizes, far, apart)
    for (int i = 0; i < TOGETHER; i++) {
        double v = rows->weight[i], psi = rows->pull[i], pull = v * psi;
        double move = v * ((psi - mean) * inverse - rows->simple[i]);
        total += v, pulls += pull, steep += v * rows->slope[i];
        squares += pull * pull, mixed += v * pull, sizes += v * v;
        far += v * rows->reach[i], apart += rows->reach[i] * move * move;
    }
    sums->total += total, sums->pulls += pulls, sums->steep += steep, sums->squares += squares;
    sums->mixed += mixed, sums->sizes += sizes, sums->far += far, sums->apart += apart;
}

/* Add Σ vψz and Σ vz, of four rows at a time: sums go through memory. */
static void add_rows(const double *RESTRICT Z, int64_t n, int64_t width, const some_rows *rows,
                     double *RESTRICT gradient, double *RESTRICT row)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4, Z += 4 * width) {
        const double *RESTRICT x = Z, *RESTRICT y = x + width, *RESTRICT z = y + width, *RESTRICT u = z + width;
        const double *v = rows->weight + i, *psi = rows->pull + i;
        double a = v[0] * psi[0], b = v[1] * psi[1], c = v[2] * psi[2], d = v[3] * psi[3];
        for (int64_t j = 0; j < width; j++) {
            gradient[j] += (a * x[j] + b * y[j]) + (c * z[j] + d * u[j]);
            row[j] += (v[0] * x[j] + v[1] * y[j]) + (v[2] * z[j] + v[3] * u[j]);
        }
    }
    for (; i < n; i++, Z += width)
        for (int64_t j = 0; j < width; j++) {
            gradient[j] += rows->weight[i] * rows->pull[i] * Z[j];
            row[j] += rows->weight[i] * Z[j];
        }
}

/* The same of short rows, column by column. */
INLINED void add_short_rows(const double *RESTRICT Z, int64_t n, int64_t width, const some_rows *rows,
                            double *RESTRICT gradient, double *RESTRICT row)
{
    for (int64_t j = 0; j < width; j++) {
        double pulled = 0.0, plain = 0.0;
        SUM(pulled, plain)
        for (int64_t i = 0; i < n; i++) {
            double weighted = rows->weight[i] * Z[i * width + j];
            pulled += weighted * rows->pull[i], plain += weighted;
        }
        gradient[j] += pulled, row[j] += plain;
    }
}

/* y − z'θ and y − z'plain of some rows. */
static void take_residuals(some_rows *rows, const double *RESTRICT Z, int64_t n, int64_t width,
                           const double *RESTRICT y, const double *RESTRICT theta, const double *RESTRICT plain)
{
    for (int64_t i = 0; i < n; i++, Z += width) {
        double fitted = 0.0, simple = 0.0;
        SUM(fitted, simple)
        for (int64_t j = 0; j < width; j++)
            fitted += Z[j] * theta[j], simple += Z[j] * plain[j];
        rows->rest[i] = y[i] - fitted, rows->simple[i] = y[i] - simple;
    }
}

/* The same of short rows, column by column. */
INLINED void take_short_residuals(some_rows *rows, const double *RESTRICT Z, int64_t n, int64_t width,
                                  const double *RESTRICT y, const double *RESTRICT theta, const double *RESTRICT plain)
{
    double *RESTRICT rest = rows->rest, *RESTRICT simple = rows->simple;
    for (int64_t j = 0; j < width; j++) {
        double by_theta = theta[j], by_plain = plain[j];
        const double *from = j ? rest : y, *simple_from = j ? simple : y;
        INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            double z = Z[i * width + j];
            rest[i] = from[i] - z * by_theta, simple[i] = simple_from[i] - z * by_plain;
        }
    }
}

/* All sums of some rows; the width is best known to the compiler. */
INLINED void add_some(some_rows *rows, const double *Z, int64_t n, int64_t width, const double *y, const double *theta,
                      const double *plain, const score *psi, double mean, double inverse, numbers *found, double *sums)
{
    if (width < SHORT)
        take_short_residuals(rows, Z, n, width, y, theta, plain);
    else
        take_residuals(rows, Z, n, width, y, theta, plain);
    look_up(psi, rows);
    add_numbers(rows, mean, inverse, found);
    (width < SHORT ? add_short_rows : add_rows)(Z, n, width, rows, sums, sums + width);
}

/* With r = y − z'θ and weights v, or ones: Σ vψz and Σ vz; Σ v, vψ, vψ′, (vψ)², v²ψ, v²; and with reach h Σ vh and
   Σ h(v((ψ − mean)/information − (y − z'plain)))². */
EXPORT int score_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v, const double *reach,
                      const double *theta, const double *plain, const double *knots, const double *values,
                      int64_t count, double mean, double information, double *RESTRICT sums)
{
    double *memory = malloc((size_t)(3 * (count + 1)) * sizeof *memory);
    if (memory == NULL)
        return NO_MEMORY;
    score psi = pieces(knots, values, count, memory);
    some_rows rows = {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}, {0.0}};
    numbers found = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    double inverse = 1.0 / information;
    memset(sums, 0, (size_t)(2 * width) * sizeof *sums);
    for (int64_t start = 0; start < n; start += TOGETHER, Z += TOGETHER * width, y += TOGETHER) {
        int64_t some = shorter(TOGETHER, n - start);
        if (some < TOGETHER)
            memset(&rows, 0, sizeof rows);
        weigh(&rows, v ? v + start : NULL, reach + start, some);
        if (width == 2)
            add_some(&rows, Z, some, 2, y, theta, plain, &psi, mean, inverse, &found, sums);
        else
            add_some(&rows, Z, some, width, y, theta, plain, &psi, mean, inverse, &found, sums);
    }
    memcpy(sums + 2 * width, &found, sizeof found);
    free(memory);
    return DONE;
}

/* ψ′ of residuals on a knot is the mean of those on both sides of it. */
static void settle_knots(const score *psi, some_rows *rows)
{
    int64_t piece[TOGETHER] = {0};
    (psi->count <= FEW_KNOTS ? count_knots : search_knots)(psi, rows->rest, piece);
    for (int i = 0; i < TOGETHER; i++) {
        int64_t next = shorter(piece[i], psi->count - 1);
        if (rows->rest[i] == psi->knots[next])
            rows->slope[i] = 0.5 * (psi->slope[piece[i]] + psi->slope[next + 1]);
    }
}

/* ψ(r) and ψ′(r) of n residuals, at a knot the mean of those on both sides of it. */
EXPORT int score_of_rows(const double *r, int64_t n, const double *knots, const double *values, int64_t count,
                         double *pull, double *slope)
{
    double *memory = malloc((size_t)(3 * (count + 1)) * sizeof *memory);
    if (memory == NULL)
        return NO_MEMORY;
    score psi = pieces(knots, values, count, memory);
    some_rows rows = {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}, {0.0}};
    for (int64_t start = 0; start < n; start += TOGETHER) {
        size_t size = (size_t)shorter(TOGETHER, n - start) * sizeof *r;
        memcpy(rows.rest, r + start, size);
        look_up(&psi, &rows);
        settle_knots(&psi, &rows);
        memcpy(pull + start, rows.pull, size);
        memcpy(slope + start, rows.slope, size);
    }
    free(memory);
    return DONE;
}

/* Σ vψ, Σ vε, Σ vψ′, Σ vψ′ε, Σ vψ′ε² of noise ε. */
typedef struct {
    double pull, noise, steep, bent, curved;
} first_sums;

static first_sums sums_of_noise(const double *RESTRICT e, const double *RESTRICT v, const double *RESTRICT psi,
                                const double *RESTRICT slope, int64_t n)
{
    double pull = 0.0, noise = 0.0, steep = 0.0, bent = 0.0, curved = 0.0;
    SUM(pull, noise, steep, bent, curved)
    for (int64_t i = 0; i < n; i++) {
        double one = v[i] * slope[i], other = one * e[i];
        pull += v[i] * psi[i], noise += v[i] * e[i];
        steep += one, bent += other, curved += other * e[i];
    }
    return (first_sums){pull, noise, steep, bent, curved};
}

/* What a score makes of noise ε that has one law: with h = ψ − E ψ, vh, vε/σ² and v(hε − E hε) of every row, and E ψ′,
   E ψ′ε, E ψ′ε² + E hε and 1/σ², where σ² is no less than `least`. */
EXPORT int pulls_of_noise(const double *RESTRICT e, int64_t n, const double *RESTRICT v, const double *knots,
                          const double *values, int64_t count, double least, double *RESTRICT rows,
                          double *RESTRICT mean, double *RESTRICT sizes, double *factors)
{
    int status = score_of_rows(e, n, knots, values, count, rows, sizes);
    if (status != DONE)
        return status;
    first_sums of = sums_of_noise(e, v, rows, sizes, n);
    double tall = 0.0, square = 0.0;
    SUM(tall, square)
    for (int64_t i = 0; i < n; i++) {
        rows[i] = v[i] * (rows[i] - of.pull);
        tall += rows[i] * e[i];
        square += v[i] * (e[i] - of.noise) * (e[i] - of.noise);
    }
    double inverse = 1.0 / larger(square, least);
    INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        mean[i] = v[i] * e[i] * inverse;
        sizes[i] = rows[i] * e[i] - v[i] * tall;
    }
    factors[0] = of.steep, factors[1] = of.bent, factors[2] = of.curved + tall, factors[3] = inverse;
    return DONE;
}

/* Numbers of the points of a curve that are corners of its least concave majorant; how many. */
EXPORT int64_t concave_corners(const double *x, const double *y, int64_t n, int64_t *corners)
{
    int64_t found = 0;
    for (int64_t place = 0; place < n; place++) {
        while (found > 1) {
            int64_t a = corners[found - 2], b = corners[found - 1];
            if ((y[b] - y[a]) * (x[place] - x[b]) > (y[place] - y[b]) * (x[b] - x[a]))
                break;
            found--;
        }
        corners[found++] = place;
    }
    return found;
}

/* Where, among n increasing numbers, such a share of all is reached, given the shares up to each or none for equal ones. */
static int64_t place_of_share(const double *below, int64_t n, double share)
{
    int64_t low = 0, high = n - 1;
    if (!below)
        return shorter((int64_t)ceil(share * (double)n) - 1, high);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (below[middle] < share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Residuals in increasing order, the shares up to each, which are known but for `rounding`, or none for equal ones. */
typedef struct {
    const double *ordered, *below;
    int64_t n;
    double rounding;
} law;

/* A quantile in the middle of where it may be, so that noise turned over has its score turned over. */
static double quantile_of(const law *of, double share)
{
    int64_t first = place_of_share(of->below, of->n, share - of->rounding);
    int64_t last = place_of_share(of->below, of->n, share + of->rounding);
    return 0.5 * (of->ordered[first] + of->ordered[last]);
}

/* The density at quantiles u, in the middle of bins that hold equally many residuals, with zeros at both ends; false where
   half of these are alike. */
static bool take_density(const law *of, int64_t bins, double narrowest, double *u, double *density)
{
    double edges[MOST_BINS + 1], span = of->ordered[of->n - 1] - of->ordered[0];
    for (int64_t k = 1; k < bins; k++)
        edges[k] = quantile_of(of, (double)k / (double)bins);
    edges[0] = of->ordered[0], edges[bins] = of->ordered[of->n - 1];
    double middle = edges[3 * bins / 4] - edges[bins / 4];
    for (int64_t k = 0; k < bins; k++) {
        u[k + 1] = ((double)k + 0.5) / (double)bins;
        density[k + 1] = 1.0 / ((double)bins * larger(edges[k + 1] - edges[k], narrowest * middle));
    }
    u[0] = density[0] = density[bins + 1] = 0.0, u[bins + 1] = 1.0;
    return middle > narrowest * span;
}

/* The best increasing score of a law: knots and values there, of which there are at most bins + 1; how many, none where there
   is no such score. No bin is narrower than that share of the distance between the quartiles. */
EXPORT int64_t best_score(const double *ordered, const double *below, int64_t n, int64_t bins, double rounding,
                          double narrowest, double *knots, double *values)
{
    law of = {ordered, below, n, rounding};
    double u[MOST_BINS + 2], density[MOST_BINS + 2];
    int64_t corners[MOST_BINS + 2], found = 0;
    if (n < 1 || bins < 1 || bins > MOST_BINS || !take_density(&of, bins, narrowest, u, density))
        return 0;
    int64_t pieces = concave_corners(u, density, bins + 2, corners) - 1;
    for (int64_t k = 0; k < pieces; k++) {
        int64_t a = corners[k], b = corners[k + 1];
        double knot = quantile_of(&of, 0.5 * (u[a] + u[b]));
        if (found && !(knot > knots[found - 1]))
            continue;
        knots[found] = knot;
        values[found++] = (density[a] - density[b]) / (u[b] - u[a]);
    }
    return found > 1 ? found : 0;
}
