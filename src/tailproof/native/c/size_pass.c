/* All sums that a pass over features as they are asks for, those of size_scores.c among them: one reading of the rows. */
#include "sized_rows.h"

#define LINE 8 /* numbers of a line of the cache */
#define SQRT2 1.4142135623730951

/* A pass over features as they are: z = (x − offset)/scale with a one behind it. Beside sums of scores it asks for the
   mean of r = y − z'θ without θ's constant, given the centre and the reach of Catoni's equation, or a reach of zero:
   then for sums by block, to which rows go in runs of their numbers. `directions` columns make leverages of z/s, 1, f. */
struct pass {
    const double *offset, *scale, *to_leverage;
    int64_t directions, blocks, run;
    double centre, reach;
};

/* Sums for the mean, with w = v/s² and e = r less the centre: as many side by side as rows are taken together. */
struct level {
    double w[TOGETHER], square[TOGETHER], own[TOGETHER], both[TOGETHER], even[TOGETHER], v[TOGETHER];
    double top[TOGETHER], slope[TOGETHER];
};

/* Columns of some rows, scaled, and ones. */
static void turn_and_scale(const double *X, int64_t n, int64_t d, const double *offset, const double *per_scale,
                           double *RESTRICT z)
{
    turn(X, n, d, z);
    for (int64_t j = 0; j < d; j++) {
        double from = offset[j], by = per_scale[j];
        INDEPENDENT
        for (int i = 0; i < TOGETHER; i++)
            z[TOGETHER * j + i] = (z[TOGETHER * j + i] - from) * by;
    }
    for (int i = 0; i < TOGETHER; i++)
        z[TOGETHER * d + i] = 1.0;
}

/* Add Σ wr, Σ wr² and Σ w by block. */
static void add_blocks(const double *r, const double *w, const int64_t *numbers, int64_t n, const struct pass *pass,
                       double *sums)
{
    int64_t k = pass->blocks;
    for (int64_t start = 0, end; start < n; start = end) {
        int64_t of = numbers[start] / pass->run, block = of % k;
        for (end = start; end < n && numbers[end] < (of + 1) * pass->run; end++) {
            sums[block] += w[end] * r[end];
            sums[k + block] += w[end] * r[end] * r[end];
            sums[2 * k + block] += w[end];
        }
    }
}

static void add_to_level(const struct some_rows *rows, double constant, const int64_t *numbers, int64_t n,
                         const struct pass *pass, struct level *into, double *blocks)
{
    double w[TOGETHER], r[TOGETHER], centre = pass->centre, by = pass->reach > 0.0 ? 1.0 / pass->reach : 0.0;
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        double inverse = 1.0 / rows->sizes[i], v = rows->weight[i];
        w[i] = v * inverse * inverse, r[i] = rows->rest[i] + constant;
        double e = r[i] - centre, x = e * by, within = clip(x, -SQRT2, SQRT2), square = within * within;
        into->w[i] += w[i], into->v[i] += v, into->square[i] += w[i] * w[i];
        into->own[i] += w[i] * e * (w[i] * e), into->both[i] += w[i] * e * (v * e), into->even[i] += v * e * (v * e);
        into->top[i] += w[i] * within * (1.0 - square * (1.0 / 6.0));
        into->slope[i] += w[i] * (fabs(x) <= SQRT2 ? 1.0 - 0.5 * square : 0.0);
    }
    if (!(pass->reach > 0.0))
        add_blocks(r, w, numbers, n, pass, blocks);
}

/* Add Σ by block, of which without blocks there is one; Σ wψ and Σ wψ′ of Catoni's equation; and Σ w², (we)², we·ve,
   (ve)² and v. */
static void finish_level(const struct level *level, const struct pass *pass, double *sums)
{
    double ones[TOGETHER], *others = sums + 3 * pass->blocks;
    const double *apart[] = {level->square, level->own, level->both, level->even, level->v};
    for (int i = 0; i < TOGETHER; i++)
        ones[i] = 1.0;
    if (pass->reach > 0.0) {
        sums[2 * pass->blocks] += product(level->w, ones);
        others[0] += product(level->top, ones), others[1] += product(level->slope, ones);
    }
    for (int k = 0; k < 5; k++)
        others[2 + k] += product(apart[k], ones);
}

/* Write z/s, 1 and f of some rows. */
static void write_over_sizes(const struct some_rows *rows, const double *z, int64_t width, int64_t m, double *into)
{
    const double *f = z + TOGETHER * width;
    double some[TOGETHER], *ones = into + TOGETHER * width;
    for (int i = 0; i < TOGETHER; i++) {
        some[i] = 1.0 / rows->sizes[i];
        ones[i] = 1.0;
    }
    write_products(z, width, some, into);
    memcpy(ones + TOGETHER, f, (size_t)(TOGETHER * m) * sizeof *f);
}

/* Leverages of some rows, where they are larger than those given; z/s, 1 and f are `factors`. */
static void raise_leverages(const double *factors, int64_t count, int64_t n, const struct pass *pass, double *leverages)
{
    double some[TOGETHER];
    take_lengths(factors, count, pass->to_leverage, pass->directions, some);
    for (int64_t i = 0; i < n; i++)
        leverages[i] = larger(some[i], leverages[i]);
}

/* The sums of `size_sums` over rows as they are, with their numbers and weights, or none, which are ones; those for the
   mean; those of `sized_score_sums`, if there is a score; and leverages where they are larger than those given, if
   directions are. */
EXPORT int size_pass_sums(const double *X, int64_t n, int64_t d, const double *y, const double *v,
                          const int64_t *numbers, const struct size_model *model, const struct slopes *slopes,
                          const struct pass *pass, const struct score *score, double *sums, double *level_sums,
                          double *score_sums, double *leverages)
{
    int64_t m = features_of(model), width = d + 1;
    double *memory = malloc((size_t)(room(width, m) + d + LINE + WIDTH * width) * sizeof *memory);
    if (memory == NULL)
        return NO_MEMORY;
    /* Numbers that are taken together are to lie in one line of the cache. */
    double *z = memory + (LINE - (uintptr_t)memory / sizeof *z % LINE);
    double *factors = z + TOGETHER * (width + m);
    struct sums scores = {.pulls = score_sums, .beside = z + room(width, m)};
    double *per_scale = scores.beside + WIDTH * width;
    memset(scores.beside, 0, (size_t)(WIDTH * width) * sizeof *z);
    for (int64_t j = 0; j < d; j++)
        per_scale[j] = 1.0 / pass->scale[j];
    struct sums into = sums_in(sums, width, m, z + room(width, m) - WIDTH * width);
    struct level level = {.w = {0.0}};
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t here = shorter(TOGETHER, n - start);
        struct some_rows rows = {.weight = {0.0}, .simple = {0.0}};
        for (int64_t i = 0; i < here; i++)
            rows.weight[i] = v ? v[start + i] : 1.0;
        memcpy(rows.simple, y + start, (size_t)here * sizeof *y);
        turn_and_scale(X + start * d, here, d, pass->offset, per_scale, z);
        add_some(model, slopes, width, z, &rows, &into);
        add_to_level(&rows, slopes->theta[d], numbers + start, here, pass, &level, level_sums);
        if (score) {
            double u[TOGETHER], psi[TOGETHER];
            look_at_scores(score, z, width, rows.rest, rows.sizes, u, psi);
            score_sums[width] += add_scores(psi, z, width, rows.weight, rows.sizes, scores.beside);
        }
        if (pass->directions) {
            write_over_sizes(&rows, z, width, m, factors);
            raise_leverages(factors, width + 1 + m, here, pass, leverages + start);
        }
    }
    finish(&into, width);
    if (score)
        finish(&scores, width);
    finish_level(&level, pass, level_sums);
    free(memory);
    return DONE;
}
