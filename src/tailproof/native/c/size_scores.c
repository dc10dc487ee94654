/* Sums over rows that slopes need where the noise is s(x) times one law: one reading of the rows. */
#include "exp_log.h"
#include "lanes.h"

#define TOGETHER 16        /* rows that are taken together, the numbers of a column side by side */
#define AT_ONCE 4          /* rows of these that are multiplied with one reading of a matrix */
#define BESIDE (2 * WIDTH) /* columns of the matrix that are multiplied together */
#define GROUPS (TOGETHER / WIDTH)

/* log s(x) is linear in some columns within a reach, their absolute values if both sides count, and 1; beyond the
   reach it grows but does not shrink. What follows is of u = (y − z'θ)/s − κ. */
struct law {
    const int64_t *columns;
    int64_t count, both_sides;
    const double *gamma;
    double reach, least, largest, kappa, tau, offset, middle;
};

static int64_t features_of(const struct law *law) { return law->count * (law->both_sides ? 2 : 1) + 1; }

/* Columns of some rows, one after the other; zero for rows that are not there. */
static void turn(const double *RESTRICT Z, int64_t n, int64_t width, double *RESTRICT z)
{
    int64_t squares = n < TOGETHER ? 0 : width / WIDTH * WIDTH;
    if (n < TOGETHER)
        memset(z, 0, (size_t)(TOGETHER * width) * sizeof *z);
    for (int64_t j = 0; j < squares; j += WIDTH)
        for (int64_t i = 0; i < TOGETHER; i += WIDTH) {
            lanes square[WIDTH];
            for (int64_t k = 0; k < WIDTH; k++)
                square[k] = load_f64(Z + (i + k) * width + j);
            transpose(square);
            for (int64_t k = 0; k < WIDTH; k++)
                store(z + TOGETHER * (j + k) + i, square[k]);
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = squares; j < width; j++)
            z[TOGETHER * j + i] = Z[i * width + j];
}

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
static void look_at_sizes(const struct law *law, const double *z, double *f, double *RESTRICT sizes)
{
    int64_t last = features_of(law) - 1;
    double near[TOGETHER] = {0.0}, more[TOGETHER] = {0.0}, size[TOGETHER];
    for (int64_t c = 0; c < law->count; c++) {
        const double *column = z + TOGETHER * law->columns[c];
        add_column(column, law->reach, law->gamma[c], near, more, f + TOGETHER * c);
        for (int i = 0; i < TOGETHER; i++)
            size[i] = fabs(column[i]);
        if (law->both_sides)
            add_column(size, law->reach, law->gamma[law->count + c], near, more, f + TOGETHER * (law->count + c));
    }
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        f[TOGETHER * last + i] = 1.0;
        sizes[i] = exp_of(clip(near[i] + law->gamma[last] + larger(more[i], 0.0), law->least, law->largest));
    }
}

/* s(x) of rows. */
EXPORT int sizes_of_rows(const double *Z, int64_t n, int64_t width, const struct law *law, double *RESTRICT sizes)
{
    double *z = malloc((size_t)(TOGETHER * (width + features_of(law))) * sizeof *z), some[TOGETHER];
    if (z == NULL)
        return NO_MEMORY;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t count = shorter(TOGETHER, n - start);
        turn(Z + start * width, count, width, z);
        look_at_sizes(law, z, z + TOGETHER * width, some);
        memcpy(sizes + start, some, (size_t)count * sizeof *some);
    }
    free(z);
    return DONE;
}

/* Some rows: weights, zero for rows that are not there; s; truncated u over s, u + κ, log(|u| + c) less its middle, and
   y − z'plain. */
struct some_rows {
    double weight[TOGETHER], sizes[TOGETHER], pull[TOGETHER], size[TOGETHER], tall[TOGETHER], simple[TOGETHER];
};

/* y − z'slopes of some rows, which stay in registers. */
static void take_residuals(const double *z, int64_t width, const double *slopes, const double *y, double *into)
{
    lanes rest[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        rest[g] = load_f64(y + g * WIDTH);
    for (int64_t j = 0; j < width; j++)
        for (int g = 0; g < GROUPS; g++)
            rest[g] -= load_f64(z + TOGETHER * j + g * WIDTH) * slopes[j];
    for (int g = 0; g < GROUPS; g++)
        store(into + g * WIDTH, rest[g]);
}

/* Fill in some rows, whose sizes are there, and targets in place of y − z'plain; without plain slopes these stay. */
static void look_at_rows(const struct law *law, const double *z, int64_t width, const double *theta,
                         const double *plain, struct some_rows *rows)
{
    double rest[TOGETHER];
    take_residuals(z, width, theta, rows->simple, rest);
    if (plain)
        take_residuals(z, width, plain, rows->simple, rows->simple);
    INDEPENDENT
    for (int i = 0; i < TOGETHER; i++) {
        double u = rest[i] / rows->sizes[i] - law->kappa;
        rows->size[i] = u + law->kappa;
        rows->pull[i] = clip(u, -law->tau, law->tau) / rows->sizes[i];
        rows->tall[i] = log_of(fabs(u) + law->offset) - law->middle;
    }
}

/* Where sums go, one after the other; those of columns are several side by side until the end. */
struct sums {
    double *pulls, *size, *tall, *row, *weights, *squares;
    double *pulls_beside, *row_beside;
};

/* Σ of products of some rows. */
static inline double product(const double *RESTRICT a, const double *RESTRICT b)
{
    double sum = 0.0;
    SUM(sum)
    for (int i = 0; i < TOGETHER; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Add Σ by·z of every column, WIDTH sums side by side. */
static void add_columns(const double *by, const double *z, int64_t width, double *into)
{
    lanes factors[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        factors[g] = load_f64(by + g * WIDTH);
    for (int64_t j = 0; j < width; j++) {
        lanes sum = load_f64(into + j * WIDTH);
        for (int g = 0; g < GROUPS; g++)
            sum += load_f64(z + TOGETHER * j + g * WIDTH) * factors[g];
        store(into + j * WIDTH, sum);
    }
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
    add_columns(pulls, z, width, into->pulls_beside);
    add_columns(rows->weight, z, width, into->row_beside);
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
EXPORT int lengths_of_rows(const double *Z, int64_t n, int64_t width, const struct law *law, const double *matrix,
                           int64_t padded, double *RESTRICT lengths)
{
    int64_t m = features_of(law), count = width + 1 + m;
    double *z = malloc((size_t)(TOGETHER * (width + count)) * sizeof *z), some[TOGETHER];
    if (z == NULL)
        return NO_MEMORY;
    double *factors = z + TOGETHER * width, *ones = factors + TOGETHER * width;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        int64_t here = shorter(TOGETHER, n - start);
        turn(Z + start * width, here, width, z);
        look_at_sizes(law, z, ones + TOGETHER, some);
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

/* Σ v pull z, Σ v(u + κ), Σ v tall f, Σ vz, Σ v, Σ v², and, unless there is no matrix, the squares of what rows move
   slopes by, in sums of as many columns as the matrix has with its padding. Sizes of the rows go into `sizes`. */
EXPORT int size_sums(const double *Z, int64_t n, int64_t width, const double *y, const double *v, const double *theta,
                     const double *plain, const struct law *law, const double *matrix, int64_t padded, double *sizes,
                     double *sums)
{
    int64_t m = features_of(law), count = 2 * width + 1 + m;
    double *z = malloc((size_t)(TOGETHER * (width + m + count) + 2 * WIDTH * width) * sizeof *z);
    if (z == NULL)
        return NO_MEMORY;
    double *f = z + TOGETHER * width, *factors = f + TOGETHER * m, *beside = factors + TOGETHER * count;
    memset(sums, 0, (size_t)(2 * width + m + 3 + padded) * sizeof *sums);
    memset(beside, 0, (size_t)(2 * WIDTH * width) * sizeof *beside);
    struct sums into = {sums, sums + width, sums + width + 1, sums + width + 1 + m, NULL, NULL, beside, NULL};
    into.weights = into.row + width, into.squares = into.weights + 2, into.row_beside = beside + WIDTH * width;
    for (int64_t start = 0; start < n; start += TOGETHER) {
        size_t here = (size_t)shorter(TOGETHER, n - start) * sizeof *v;
        struct some_rows rows = {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}, {0.0}};
        memcpy(rows.weight, v + start, here);
        memcpy(rows.simple, y + start, here);
        turn(Z + start * width, shorter(TOGETHER, n - start), width, z);
        look_at_sizes(law, z, f, rows.sizes);
        look_at_rows(law, z, width, theta, matrix ? plain : NULL, &rows);
        memcpy(sizes + start, rows.sizes, here);
        add_rows(&rows, z, width, f, m, &into);
        if (matrix) {
            write_factors(&rows, z, width, f, m, factors);
            add_squares(factors, count, matrix, padded, rows.weight, into.squares);
        }
    }
    for (int64_t j = 0; j < width; j++) {
        into.pulls[j] = sum_of(load_f64(into.pulls_beside + j * WIDTH));
        into.row[j] = sum_of(load_f64(into.row_beside + j * WIDTH));
    }
    free(z);
    return DONE;
}
