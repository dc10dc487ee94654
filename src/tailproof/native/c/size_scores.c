/* Sums over rows that slopes need where the noise is s(x) times one law: one reading of the rows. */
#include "lanes.h"

#define TOGETHER 16  /* rows that are taken together: what they need stays in the fast cache */
#define AT_ONCE 4    /* rows of these that are multiplied with one reading of a matrix */
#define BESIDE (2 * WIDTH) /* columns of the matrix that are multiplied together */

/* log s(x) is linear in some columns within a reach, their absolute values if both sides count, and 1; beyond the
   reach it grows but does not shrink. What follows is of u = (y − z'θ)/s − κ. */
struct law {
    const int64_t *columns;
    int64_t count, both_sides;
    const double *gamma;
    double reach, least, largest, kappa, tau, offset, middle;
};

static int64_t features_of(const struct law *law) { return law->count * (law->both_sides ? 2 : 1) + 1; }

/* Write what log s(x) is linear in, within the reach; returns log s(x), not beyond its ends. */
static double look_at_row(const struct law *law, const double *RESTRICT z, double *RESTRICT f)
{
    int64_t count = law->count, last = features_of(law) - 1;
    const double *RESTRICT gamma = law->gamma, *RESTRICT of_sizes = gamma + (law->both_sides ? count : 0);
    double *RESTRICT sizes = f + (law->both_sides ? count : 0), both = law->both_sides ? 1.0 : 0.0;
    double near = 0.0, cut = 0.0, reach = law->reach;
    for (int64_t c = 0; c < count; c++)
        f[c] = z[law->columns[c]];
    SUM(near, cut)
    for (int64_t c = 0; c < count; c++) {
        double value = f[c], inside = clip(value, -reach, reach), size = both * fabs(inside);
        near += inside * gamma[c] + size * of_sizes[c];
        cut += (value - inside) * gamma[c] + (both * fabs(value) - size) * of_sizes[c];
        f[c] = inside;
    }
    if (law->both_sides)
        for (int64_t c = 0; c < count; c++)
            sizes[c] = fabs(f[c]);
    f[last] = 1.0;
    return clip(near + gamma[last] + larger(cut, 0.0), law->least, law->largest);
}

/* s(x) of rows. */
EXPORT int sizes_of_rows(const double *Z, int64_t n, int64_t width, const struct law *law, double *RESTRICT sizes)
{
    double *f = malloc((size_t)features_of(law) * sizeof *f);
    if (f == NULL)
        return NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        sizes[i] = exp(look_at_row(law, Z + i * width, f));
    free(f);
    return DONE;
}

/* Some rows: weights, zero for rows that are not there; truncated u over s, u + κ, log(|u| + c) less its middle, and
   y − z'plain. */
struct some_rows {
    double weight[TOGETHER], pull[TOGETHER], size[TOGETHER], tall[TOGETHER], simple[TOGETHER];
};

/* Fill in some rows, with features of each one after the other. */
static void look_at_rows(const struct law *law, const double *RESTRICT Z, int64_t n, int64_t width, const double *y,
                         const double *theta, const double *plain, struct some_rows *rows, double *f, double *sizes)
{
    int64_t m = features_of(law);
    for (int64_t i = 0; i < n; i++, Z += width) {
        double fitted = 0.0, simple = 0.0;
        SUM(fitted, simple)
        for (int64_t j = 0; j < width; j++)
            fitted += Z[j] * theta[j], simple += Z[j] * plain[j];
        sizes[i] = exp(look_at_row(law, Z, f + i * m));
        double size = (y[i] - fitted) / sizes[i], u = size - law->kappa;
        rows->size[i] = size;
        rows->pull[i] = clip(u, -law->tau, law->tau) / sizes[i];
        rows->tall[i] = log(fabs(u) + law->offset) - law->middle;
        rows->simple[i] = y[i] - simple;
    }
}

/* Where sums go, one after the other. */
struct sums {
    double *pulls, *size, *tall, *row, *weights, *squares;
};

/* into += a x + b y + c z + d u, with the four rows one after the other: sums go through memory. */
static void add_four(const double *RESTRICT rows, int64_t width, const double *by, double *RESTRICT into)
{
    const double *x = rows, *y = x + width, *z = y + width, *u = z + width;
    INDEPENDENT
    for (int64_t j = 0; j < width; j++)
        into[j] += (by[0] * x[j] + by[1] * y[j]) + (by[2] * z[j] + by[3] * u[j]);
}

/* Add to sums, of four rows at a time; of a few that are left one by one. */
static void add_products(const double *RESTRICT rows, int64_t n, int64_t width, const double *by, double *RESTRICT into)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        add_four(rows + i * width, width, by + i, into);
    for (; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            into[j] += by[i] * rows[i * width + j];
}

static void add_rows(const struct some_rows *rows, const double *RESTRICT Z, int64_t n, int64_t width,
                     const double *RESTRICT f, int64_t m, const struct sums *into)
{
    double pulls[TOGETHER], heights[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        double v = rows->weight[i];
        pulls[i] = v * rows->pull[i];
        heights[i] = v * rows->tall[i];
        *into->size += v * rows->size[i];
        into->weights[0] += v;
        into->weights[1] += v * v;
    }
    add_products(Z, n, width, pulls, into->pulls);
    add_products(Z, n, width, rows->weight, into->row);
    add_products(f, n, m, heights, into->tall);
}

/* What is multiplied with the matrix: z times the pull, z times y − z'plain, u + κ, and f times the height, of one row
   after AT_ONCE others. */
static void write_factors(const struct some_rows *rows, int64_t i, const double *z, int64_t width, const double *f,
                          int64_t m, double *RESTRICT into)
{
    for (int64_t j = 0; j < width; j++) {
        into[AT_ONCE * j] = rows->pull[i] * z[j];
        into[AT_ONCE * (width + j)] = rows->simple[i] * z[j];
    }
    into[AT_ONCE * 2 * width] = rows->size[i];
    for (int64_t l = 0; l < m; l++)
        into[AT_ONCE * (2 * width + 1 + l)] = rows->tall[i] * f[l];
}

/* BESIDE columns of factors times matrix, of AT_ONCE rows whose factors lie side by side. */
static inline void multiply(const double *RESTRICT factors, int64_t count, const double *RESTRICT matrix,
                            int64_t padded, lanes *first, lanes *second)
{
    for (int r = 0; r < AT_ONCE; r++)
        first[r] = second[r] = (lanes){0.0};
    for (int64_t q = 0; q < count; q++) {
        lanes a = load_f64(matrix + q * padded), b = load_f64(matrix + q * padded + WIDTH);
        for (int r = 0; r < AT_ONCE; r++) {
            first[r] += factors[AT_ONCE * q + r] * a;
            second[r] += factors[AT_ONCE * q + r] * b;
        }
    }
}

/* Add v²(factors times matrix)² of AT_ONCE rows. */
static void add_squares(const double *factors, int64_t count, const double *matrix, int64_t padded, const double *v,
                        double *RESTRICT squares)
{
    for (int64_t j = 0; j < padded; j += BESIDE) {
        lanes first[AT_ONCE], second[AT_ONCE], here = load_f64(squares + j), there = load_f64(squares + j + WIDTH);
        multiply(factors, count, matrix + j, padded, first, second);
        for (int r = 0; r < AT_ONCE; r++) {
            here += (v[r] * first[r]) * (v[r] * first[r]);
            there += (v[r] * second[r]) * (v[r] * second[r]);
        }
        store(squares + j, here);
        store(squares + j + WIDTH, there);
    }
}

/* Square norms of z/s, 1 and f times a matrix, of every row. */
EXPORT int lengths_of_rows(const double *Z, int64_t n, int64_t width, const struct law *law, const double *matrix,
                           int64_t padded, double *RESTRICT lengths)
{
    int64_t m = features_of(law), count = width + 1 + m;
    double *memory = calloc((size_t)(m + AT_ONCE * count), sizeof *memory), *factors = memory + m;
    if (memory == NULL)
        return NO_MEMORY;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        int64_t some = shorter(AT_ONCE, n - i);
        for (int64_t r = 0; r < some; r++) {
            const double *z = Z + (i + r) * width;
            double inverse = exp(-look_at_row(law, z, memory));
            for (int64_t j = 0; j < width; j++)
                factors[AT_ONCE * j + r] = inverse * z[j];
            factors[AT_ONCE * width + r] = 1.0;
            for (int64_t l = 0; l < m; l++)
                factors[AT_ONCE * (width + 1 + l) + r] = memory[l];
            lengths[i + r] = 0.0;
        }
        for (int64_t j = 0; j < padded; j += BESIDE) {
            lanes first[AT_ONCE], second[AT_ONCE];
            multiply(factors, count, matrix + j, padded, first, second);
            for (int64_t r = 0; r < some; r++)
                lengths[i + r] += sum_of(first[r] * first[r] + second[r] * second[r]);
        }
    }
    free(memory);
    return DONE;
}

/* Σ v pull z, Σ v(u + κ), Σ v tall f, Σ vz, Σ v, Σ v², and, unless there is no matrix, the squares of what rows move
   slopes by, in sums of as many columns as the matrix has with its padding. Sizes of the rows go into `sizes`. */
EXPORT int size_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v, const double *theta,
                     const double *plain, const struct law *law, const double *matrix, int64_t padded, double *sizes,
                     double *sums)
{
    int64_t m = features_of(law), count = 2 * width + 1 + m;
    double *memory = calloc((size_t)(TOGETHER * m + AT_ONCE * count), sizeof *memory), *f = memory;
    if (memory == NULL)
        return NO_MEMORY;
    memset(sums, 0, (size_t)(2 * width + m + 3 + padded) * sizeof *sums);
    struct sums into = {sums, sums + width, sums + width + 1, sums + width + 1 + m, NULL, NULL};
    into.weights = into.row + width, into.squares = into.weights + 2;
    for (int64_t start = 0; start < n; start += TOGETHER, Z += TOGETHER * width) {
        int64_t some = shorter(TOGETHER, n - start);
        struct some_rows rows = {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}};
        memcpy(rows.weight, v + start, (size_t)some * sizeof *v);
        look_at_rows(law, Z, some, width, y + start, theta, plain, &rows, f, sizes + start);
        add_rows(&rows, Z, some, width, f, m, &into);
        for (int64_t i = 0; i < (matrix ? some : 0); i += AT_ONCE) {
            double *factors = memory + TOGETHER * m;
            for (int64_t r = 0; r < shorter(AT_ONCE, some - i); r++)
                write_factors(&rows, i + r, Z + (i + r) * width, width, f + (i + r) * m, m, factors + r);
            add_squares(factors, count, matrix, padded, rows.weight + i, into.squares);
        }
    }
    free(memory);
    return DONE;
}
