/* Some rows whose noise is s(x) times one law: sizes of their noise, what is left of them over these, and scores. */
#ifndef TAILPROOF_SIZED_ROWS_H
#define TAILPROOF_SIZED_ROWS_H

#include "exp_log.h"
#include "turned.h"

#define AT_ONCE 4          /* rows of these that are multiplied with one reading of a matrix */
#define BESIDE (2 * WIDTH) /* columns of the matrix that are multiplied together */

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

#endif
