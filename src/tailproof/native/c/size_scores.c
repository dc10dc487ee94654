/* Sums over rows that slopes need where the noise is s(x) times one law: one reading of the rows. */
#include "exp_log.h"
#include "size_derivatives.h"

#define AT_ONCE 4          /* rows of these that are multiplied with one reading of a matrix */
#define BESIDE (2 * WIDTH) /* columns of the matrix that are multiplied together */
#define LINE 8             /* numbers of a line of the cache */
#define SQRT2 1.4142135623730951

/* log s(x) is linear in some columns within a reach, their absolute values if both sides count, and 1; beyond the
   reach it grows but does not shrink. What follows is of u = (y − z'θ)/s − κ. */
struct size_model {
    const int64_t *columns;
    int64_t count, both_sides;
    const double *gamma;
    double reach, least, largest, kappa, tau, offset, middle;
};

static int64_t features_of(const struct size_model *model) { return model->count * (model->both_sides ? 2 : 1) + 1; }

/* Add one column to log s(x) and to what it is more beyond the reach, and write it within. */
static inline void add_column(const double *RESTRICT z, double reach, double gamma, double *RESTRICT near,
                              double *RESTRICT more, double *RESTRICT f)
{
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        double inside = clip(z[i], -reach, reach);
        near[i] += inside * gamma;
        more[i] += (z[i] - inside) * gamma;
        f[i] = inside;
    }
}

/* Write what log s(x) is linear in, and s(x), of some rows. */
static void look_at_sizes(const struct size_model *model, const double *z, double *f, double *RESTRICT sizes)
{
    int64_t last = features_of(model) - 1, count = model->count;
    double near[TOGETHER] = {0.0}, more[TOGETHER] = {0.0}, size[TOGETHER];
    for (int64_t c = 0; c < count; c++) {
        const double *column = z + TOGETHER * model->columns[c];
        add_column(column, model->reach, model->gamma[c], near, more, f + TOGETHER * c);
        for (int i = 0; i < TOGETHER; i++)
            size[i] = fabs(column[i]);
        if (model->both_sides)
            add_column(size, model->reach, model->gamma[count + c], near, more, f + TOGETHER * (count + c));
    }
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        f[TOGETHER * last + i] = 1.0;
        sizes[i] = exp_of(clip(near[i] + model->gamma[last] + larger(more[i], 0.0), model->least, model->largest));
    }
}

/* s(x) of rows. */
EXPORT int sizes_of_rows(const double *Z, int64_t n, int64_t width, const struct size_model *model,
                         double *RESTRICT sizes)
{
    double *z = malloc((size_t)(TOGETHER * (width + features_of(model))) * sizeof *z), some[TOGETHER];
    if (z == NULL)
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t count = shorter(TOGETHER, n - start);
        turn(Z + start * width, count, width, z);
        look_at_sizes(model, z, z + TOGETHER * width, some);
        memcpy(sizes + start, some, (size_t)count * sizeof *some);
    }
    free(z);
    return DONE;
}

/* Some rows: weights, zero for rows that are not there; s; y − z'θ; truncated u over s, u + κ, log(|u| + c) less its
   middle, and y − z'plain. */
struct some_rows {
    double weight[TOGETHER], sizes[TOGETHER], rest[TOGETHER], pull[TOGETHER], size[TOGETHER], tall[TOGETHER];
    double simple[TOGETHER];
};

/* Fill in some rows, whose sizes are there, and targets in place of y − z'plain; without plain slopes these stay. */
static void look_at_rows(const struct size_model *model, const double *z, int64_t width, const double *theta,
                         const double *plain, struct some_rows *rows)
{
    take_residuals(z, width, theta, rows->simple, rows->rest);
    if (plain)
        take_residuals(z, width, plain, rows->simple, rows->simple);
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        double u = rows->rest[i] / rows->sizes[i] - model->kappa;
        rows->size[i] = u + model->kappa;
        rows->pull[i] = clip(u, -model->tau, model->tau) / rows->sizes[i];
        rows->tall[i] = log_of(fabs(u) + model->offset) - model->middle;
    }
}

/* Where sums go, one after the other; those of columns are several side by side until the end. */
struct sums {
    double *pulls, *size, *tall, *weights, *squares;
    double *beside;
};

static struct sums sums_in(double *sums, int64_t width, int64_t m, double *beside)
{
    memset(beside, 0, (size_t)(WIDTH * width) * sizeof *beside);
    return (struct sums){sums, sums + width, sums + width + 1, sums + width + 1 + m, sums + width + m + 3, beside};
}

/* Add what was side by side. */
static void finish(const struct sums *into, int64_t width)
{
    for (int64_t j = 0; j < width; j++)
        into->pulls[j] += sum_of(load_f64(into->beside + j * WIDTH));
}

static void add_rows(const struct some_rows *rows, const double *z, int64_t width, const double *f, int64_t m,
                     const struct sums *into)
{
    double pulls[TOGETHER], heights[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        pulls[i] = rows->weight[i] * rows->pull[i];
        heights[i] = rows->weight[i] * rows->tall[i];
        into->weights[0] += rows->weight[i];
    }
    add_columns(pulls, z, width, into->beside);
    for (int64_t l = 0; l < m; l++)
        into->tall[l] += product(f + TOGETHER * l, heights);
    *into->size += product(rows->weight, rows->size);
    into->weights[1] += product(rows->weight, rows->weight);
}

/* into = by · columns, of some rows. */
static void write_products(const double *RESTRICT columns, int64_t count, const double *RESTRICT by,
                           double *RESTRICT into)
{
    for (int64_t q = 0; q < count; q++)
        for (int i = 0; i < TOGETHER; i++)
            into[TOGETHER * q + i] = by[i] * columns[TOGETHER * q + i];
}

/* BESIDE columns of factors times matrix, of AT_ONCE of some rows. */
static inline void multiply(const double *RESTRICT factors, int64_t count, const double *RESTRICT matrix,
                            int64_t padded, lanes *first, lanes *second)
{
    for (int r = 0; r < AT_ONCE; r++)
        first[r] = second[r] = (lanes){0.0};
    for (int64_t q = 0; q < count; q++) {
        lanes a = load_f64(matrix + q * padded), b = load_f64(matrix + q * padded + WIDTH);
        for (int r = 0; r < AT_ONCE; r++) {
            first[r] += factors[TOGETHER * q + r] * a;
            second[r] += factors[TOGETHER * q + r] * b;
        }
    }
}

/* Add v²(factors times matrix)² of some rows. */
static void add_squares(const double *factors, int64_t count, const double *matrix, int64_t padded, const double *v,
                        double *RESTRICT squares)
{
    for (int64_t j = 0; j < padded; j += BESIDE) {
        lanes first[AT_ONCE], second[AT_ONCE], here = load_f64(squares + j), there = load_f64(squares + j + WIDTH);
        for (int i = 0; i < TOGETHER; i += AT_ONCE) {
            multiply(factors + i, count, matrix + j, padded, first, second);
            for (int r = 0; r < AT_ONCE; r++) {
                here += (v[i + r] * first[r]) * (v[i + r] * first[r]);
                there += (v[i + r] * second[r]) * (v[i + r] * second[r]);
            }
        }
        store(squares + j, here);
        store(squares + j + WIDTH, there);
    }
}

/* Square norms of factors times matrix, of some rows. */
static void take_lengths(const double *factors, int64_t count, const double *matrix, int64_t padded,
                         double *RESTRICT lengths)
{
    memset(lengths, 0, TOGETHER * sizeof *lengths);
    for (int64_t j = 0; j < padded; j += BESIDE)
        for (int i = 0; i < TOGETHER; i += AT_ONCE) {
            lanes first[AT_ONCE], second[AT_ONCE];
            multiply(factors + i, count, matrix + j, padded, first, second);
            for (int r = 0; r < AT_ONCE; r++)
                lengths[i + r] += sum_of(first[r] * first[r] + second[r] * second[r]);
        }
}

/* Square norms of z/s, 1 and f times a matrix, of every row. */
EXPORT int lengths_of_rows(const double *Z, int64_t n, int64_t width, const struct size_model *model,
                           const double *matrix, int64_t padded, double *RESTRICT lengths)
{
    int64_t m = features_of(model), count = width + 1 + m;
    double *z = malloc((size_t)(TOGETHER * (width + count)) * sizeof *z), some[TOGETHER];
    if (z == NULL)
        return NO_MEMORY;
    double *factors = z + TOGETHER * width, *ones = factors + TOGETHER * width;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t here = shorter(TOGETHER, n - start);
        turn(Z + start * width, here, width, z);
        look_at_sizes(model, z, ones + TOGETHER, some);
        for (int i = 0; i < TOGETHER; i++) {
            ones[i] = 1.0;
            some[i] = 1.0 / some[i];
        }
        write_products(z, width, some, factors);
        take_lengths(factors, count, matrix, padded, some);
        memcpy(lengths + start, some, (size_t)here * sizeof *some);
    }
    free(z);
    return DONE;
}

/* Write what rows move slopes by, before a product with a matrix: ψz/s, (y − z'plain)z, u + κ and tf. */
static void write_factors(const struct some_rows *rows, const double *z, int64_t width, const double *f, int64_t m,
                          double *into)
{
    write_products(z, width, rows->pull, into);
    write_products(z, width, rows->simple, into + TOGETHER * width);
    memcpy(into + TOGETHER * 2 * width, rows->size, sizeof rows->size);
    write_products(f, m, rows->tall, into + TOGETHER * (2 * width + 1));
}

/* Slopes, others to compare with, and what rows move the former by is multiplied with, `padded` columns, or nothing. */
struct slopes {
    const double *theta, *plain, *matrix;
    int64_t padded;
};

/* Numbers of working memory for some rows: z, f and factors one after the other, and sums side by side. */
static int64_t room(int64_t width, int64_t m) { return TOGETHER * (3 * width + 1 + 2 * m) + WIDTH * width; }

/* Add some rows, whose columns z, weights and, in place of y − z'plain, targets are there. */
static void add_some(const struct size_model *model, const struct slopes *slopes, int64_t width, double *z,
                     struct some_rows *rows, const struct sums *into)
{
    int64_t m = features_of(model);
    double *f = z + TOGETHER * width, *factors = f + TOGETHER * m;
    look_at_sizes(model, z, f, rows->sizes);
    look_at_rows(model, z, width, slopes->theta, slopes->matrix ? slopes->plain : NULL, rows);
    add_rows(rows, z, width, f, m, into);
    if (slopes->matrix) {
        write_factors(rows, z, width, f, m, factors);
        add_squares(factors, 2 * width + 1 + m, slopes->matrix, slopes->padded, rows->weight, into->squares);
    }
}

/* Add Σ v pull z, Σ v(u + κ), Σ v tall f, Σ v, Σ v², and, unless there is no matrix, the squares of what rows move
   slopes by, in sums of as many columns as the matrix has with its padding. */
EXPORT int size_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v,
                     const struct size_model *model, const struct slopes *slopes, double *sums)
{
    int64_t m = features_of(model);
    double *z = malloc((size_t)room(width, m) * sizeof *z);
    if (z == NULL)
        return NO_MEMORY;
    struct sums into = sums_in(sums, width, m, z + room(width, m) - WIDTH * width);
    for (int64_t start = 0; start < n; start += TOGETHER) {
        size_t here = (size_t)shorter(TOGETHER, n - start) * sizeof *v;
        struct some_rows rows = {.weight = {0.0}, .simple = {0.0}};
        memcpy(rows.weight, v + start, here);
        memcpy(rows.simple, y + start, here);
        turn(Z + start * width, shorter(TOGETHER, n - start), width, z);
        add_some(model, slopes, width, z, &rows, &into);
    }
    finish(&into, width);
    free(z);
    return DONE;
}

/* A score ψ of u = (y − z'slopes)/s − κ, with sizes s that are known: `first` up to the first of its knots, and from
   each to the next as steep as given. In a pass its slopes are those beyond θ. */
struct score {
    const double *slopes, *knots, *steepness;
    int64_t count;
    double first, kappa;
};

/* Write u and ψ of some rows, given their targets. */
static void look_at_scores(const struct score *score, const double *z, int64_t width, const double *targets,
                           const double *sizes, double *u, double *psi)
{
    take_residuals(z, width, score->slopes, targets, u);
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        u[i] = u[i] / sizes[i] - score->kappa;
        psi[i] = score->first;
    }
    for (int64_t k = 0; k + 1 < score->count; k++) {
        double from = score->knots[k], to = score->knots[k + 1], steep = score->steepness[k];
        INDEPENDENT
        for (int i = 0; i < TOGETHER; i++)
            psi[i] += steep * (clip(u[i], from, to) - from);
    }
}

/* Add Σ vψz/s, side by side, and return Σ vψ of some rows, given ψ, which is no more after that. */
static double add_scores(double *psi, const double *z, int64_t width, const double *v, const double *sizes,
                         double *beside)
{
    double sum = product(v, psi);
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++)
        psi[i] *= v[i] / sizes[i];
    add_columns(psi, z, width, beside);
    return sum;
}

/* Add Σ vψz/s and Σ vψ. */
EXPORT int sized_score_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v,
                            const double *sizes, const struct score *score, double *sums)
{
    double *z = malloc((size_t)((TOGETHER + WIDTH) * width) * sizeof *z);
    if (z == NULL)
        return NO_MEMORY;
    struct sums into = {.pulls = sums, .beside = z + TOGETHER * width};
    memset(into.beside, 0, (size_t)(WIDTH * width) * sizeof *z);
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t here = shorter(TOGETHER, n - start);
        double targets[TOGETHER] = {0.0}, weights[TOGETHER] = {0.0}, some[TOGETHER], u[TOGETHER], psi[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            some[i] = 1.0;
        memcpy(targets, y + start, (size_t)here * sizeof *y);
        memcpy(weights, v + start, (size_t)here * sizeof *v);
        memcpy(some, sizes + start, (size_t)here * sizeof *sizes);
        turn(Z + start * width, here, width, z);
        look_at_scores(score, z, width, targets, some, u, psi);
        sums[width] += add_scores(psi, z, width, weights, some, into.beside);
    }
    finish(&into, width);
    free(z);
    return DONE;
}

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

/* Steepness of the conditions of a fit by size. */
static struct steepness steepness_of_size(const struct size_model *model, const struct some_rows *rows)
{
    struct steepness by;
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        double v = rows->weight[i], size = rows->size[i], u = size - model->kappa;
        double inside = fabs(u) <= model->tau ? v : 0.0, sign = (double)((u > 0.0) - (u < 0.0));
        by.inside[i] = inside, by.wider[i] = inside * size + v * clip(u, -model->tau, model->tau);
        by.tall[i] = v * sign / (fabs(u) + model->offset), by.taller[i] = by.tall[i] * size;
        by.one[i] = v, by.size[i] = v * size;
    }
    return by;
}

/* The same of a law, given u and ψ. */
static struct steepness steepness_of_law(const struct score *score, const double *u, const double *psi, const double *v)
{
    struct steepness by = {.inside = {0.0}};
    for (int64_t k = 0; k + 1 < score->count; k++) {
        double from = score->knots[k], to = score->knots[k + 1], steep = score->steepness[k];
        INDEPENDENT
        for (int i = 0; i < TOGETHER; i++)
            by.inside[i] += (u[i] >= from) & (u[i] < to) ? v[i] * steep : 0.0;
    }
    for (int i = 0; i < TOGETHER; i++) {
        by.size[i] = by.inside[i] * (u[i] + score->kappa);
        by.wider[i] = by.size[i] + v[i] * psi[i];
    }
    return by;
}

/* Add sums that are WIDTH times side by side. */
static void fold(const double *beside, int64_t count, double *sums)
{
    for (int64_t k = 0; k < count; k++)
        sums[k] += sum_of(load_f64(beside + k * WIDTH));
}

/* The sums of `size_sums` over rows as they are, with their numbers and weights, or none, which are ones; those for the
   mean; those of `sized_score_sums`, if there is a score; derivatives of the former and of the latter, unless there is
   no place for them; and leverages where they are larger than those given, if directions are. */
EXPORT int size_pass_sums(const double *X, int64_t n, int64_t d, const double *y, const double *v,
                          const int64_t *numbers, const struct size_model *model, const struct slopes *slopes,
                          const struct pass *pass, const struct score *score, double *sums, double *level_sums,
                          double *score_sums, double *derivatives, double *leverages)
{
    int64_t m = features_of(model), width = d + 1, of_size = derivatives ? derivatives_of_size(width, m) : 0;
    int64_t beside = of_size + (derivatives && score ? derivatives_of_law(width, m) : 0) + width;
    double *memory = malloc((size_t)(room(width, m) + d + LINE + WIDTH * beside) * sizeof *memory);
    if (memory == NULL)
        return NO_MEMORY;
    /* Numbers that are taken together are to lie in one line of the cache. */
    double *z = memory + (LINE - (uintptr_t)memory / sizeof *z % LINE);
    double *factors = z + TOGETHER * (width + m);
    struct sums scores = {.pulls = score_sums, .beside = z + room(width, m)};
    double *steep = scores.beside + WIDTH * width, *per_scale = scores.beside + WIDTH * beside;
    memset(scores.beside, 0, (size_t)(WIDTH * beside) * sizeof *z);
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
        if (derivatives || pass->directions)
            write_over_sizes(&rows, z, width, m, factors);
        if (derivatives) {
            struct steepness by = steepness_of_size(model, &rows);
            add_size_derivatives(&by, factors, width, m, steep);
        }
        if (score) {
            double u[TOGETHER], psi[TOGETHER];
            look_at_scores(score, z, width, rows.rest, rows.sizes, u, psi);
            if (derivatives) {
                struct steepness by = steepness_of_law(score, u, psi, rows.weight);
                add_law_derivatives(&by, factors, width, m, steep + WIDTH * of_size);
            }
            score_sums[width] += add_scores(psi, z, width, rows.weight, rows.sizes, scores.beside);
        }
        if (pass->directions)
            raise_leverages(factors, width + 1 + m, here, pass, leverages + start);
    }
    finish(&into, width);
    fold(scores.beside, score ? width : 0, score_sums);
    fold(steep, beside - width, derivatives);
    finish_level(&level, pass, level_sums);
    free(memory);
    return DONE;
}
