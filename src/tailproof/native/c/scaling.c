/* Rough centres and scales of columns, from a sample of rows. */
#include "lanes.h"

#define TILE 32     /* columns that are sorted together: their groups stay in the fast cache */
#define TOGETHER 4 /* rows that are added to products at once */

#define LARGEST 1.7976931348623157e308

/* x². */
static double square(double x) { return x * x; }

/* The smaller of each pair to a, the larger to b. */
INLINED void order_pairs(double *RESTRICT a, double *RESTRICT b, int64_t width)
{
    for (int64_t j = 0; j < width; j += WIDTH) {
        lanes first = load_f64(a + j), second = load_f64(b + j);
        store(a + j, smaller_lanes(first, second));
        store(b + j, larger_lanes(first, second));
    }
}

/* The same where NaN counts as larger than every number. */
static inline void order_pairs_with_nan(double *RESTRICT a, double *RESTRICT b, int64_t width)
{
    INDEPENDENT
    for (int64_t j = 0; j < width; j++) {
        double first = a[j], second = b[j];
        bool exchanged = first > second || first != first;
        a[j] = exchanged ? second : first;
        b[j] = exchanged ? first : second;
    }
}

/* Whether a number is NaN. */
static bool has_nan(const double *values, int64_t n)
{
    int64_t count = 0;
    SUM(count)
    for (int64_t i = 0; i < n; i++)
        count += values[i] != values[i];
    return count > 0;
}

/* Sort `width` columns of n rows, all at once, by Batcher's network (Knuth, vol. 3, Algorithm 5.2.2 M).

   More exchanges than a quick sort of each column, but none depends on the values: they vectorise over columns. */
INLINED void sort_columns(double *rows, int64_t n, int64_t width)
{
    bool missing = has_nan(rows, n * width);
    int64_t top = 1;
    while (2 * top < n)
        top *= 2;
    for (int64_t p = top; p > 0; p /= 2)
        for (int64_t q = top, r = 0, apart = p; q >= p; r = p, apart = q - p, q /= 2)
            for (int64_t i = 0; i + apart < n; i++) {
                if ((i & p) != r)
                    continue;
                if (missing)
                    order_pairs_with_nan(rows + i * width, rows + (i + apart) * width, width);
                else
                    order_pairs(rows + i * width, rows + (i + apart) * width, width);
            }
}

/* Sum of x, or of (x − centre)², of some columns over a group of rows of d numbers. */
INLINED void add_group(const double *RESTRICT rows, int64_t size, int64_t d, int64_t columns,
                       const double *RESTRICT centre, double *RESTRICT sums)
{
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int64_t i = 0; i < size; i++, rows += d) {
        if (centre) {
            INDEPENDENT
            for (int64_t j = 0; j < columns; j++)
                sums[j] += square(rows[j] - centre[j]);
        } else {
            INDEPENDENT
            for (int64_t j = 0; j < columns; j++)
                sums[j] += rows[j];
        }
    }
}

/* Medians of the means of some columns, at most TILE; `sums` has room for those of all groups. */
INLINED void medians_of_tile(const double *sample, int64_t d, int64_t columns, int64_t groups, int64_t size,
                             const double *centre, double *sums, double *RESTRICT medians)
{
    int64_t width = (columns + WIDTH - 1) / WIDTH * WIDTH;
    const double *lower = sums + (groups - 1) / 2 * width, *upper = sums + groups / 2 * width;
    for (int64_t g = 0; g < groups; g++)
        add_group(sample + g * size * d, size, d, columns, centre, sums + g * width);
    sort_columns(sums, groups, width);
    for (int64_t j = 0; j < columns; j++)
        medians[j] = lower[j] / (double)size / 2.0 + upper[j] / (double)size / 2.0; /* their sum may overflow */
}

/* Whether no number is NaN or infinite. */
static bool all_finite(const double *values, int64_t n)
{
    int64_t count = 0;
    SUM(count)
    for (int64_t i = 0; i < n; i++)
        count += !(fabs(values[i]) <= LARGEST);
    return count == 0;
}

/* How far the r-th nearest of n sorted numbers lies from their middle, of `width` columns at once, all finite.

   Those below the middle and those above it are sorted by their distance, and i of the nearest r + 1 are below. */
INLINED void nearest_to_middle(const double *sorted, int64_t n, int64_t width, int64_t r, const double *middle,
                               double *RESTRICT distance)
{
    int64_t below = n / 2, first = r + 1 > n - below ? r + 1 - (n - below) : 0, last = shorter(r + 1, below);
    for (int64_t j = 0; j < width; j += WIDTH) {
        lanes c = load_f64(middle + j), least = c - c + INFINITY;
        for (int64_t i = first; i <= last; i++) {
            lanes low = c - c, high = low;
            if (i > 0)
                low = c - load_f64(sorted + (below - i) * width + j);
            if (i <= r)
                high = load_f64(sorted + (below + r - i) * width + j) - c;
            least = smaller_lanes(larger_lanes(low, high), least);
        }
        store(distance + j, least);
    }
}

/* The median of (x − middle)² of columns that were sorted for their middles. */
INLINED void squares_of_sorted(const double *sorted, int64_t n, int64_t columns, const double *middle,
                               double *RESTRICT medians)
{
    int64_t width = (columns + WIDTH - 1) / WIDTH * WIDTH;
    double about[TILE] = {0.0}, lower[TILE], upper[TILE];
    memcpy(about, middle, (size_t)columns * sizeof *about);
    nearest_to_middle(sorted, n, width, (n - 1) / 2, about, lower);
    nearest_to_middle(sorted, n, width, n / 2, about, upper);
    for (int64_t j = 0; j < columns; j++)
        medians[j] = square(lower[j]) / 2.0 + square(upper[j]) / 2.0;
}

/* The medians, and those about them or about zero, while the columns are in the fast cache. */
INLINED void moments_of_tile(const double *sample, int64_t d, int64_t columns, int64_t groups, int64_t size,
                             bool centred, double *sums, double *middle, double *variance)
{
    const double zeros[TILE] = {0.0};
    medians_of_tile(sample, d, columns, groups, size, NULL, sums, middle);
    if (variance && size == 1 && centred && all_finite(sums, groups * ((columns + WIDTH - 1) / WIDTH * WIDTH)))
        squares_of_sorted(sums, groups, columns, middle, variance); /* no need to sort again */
    else if (variance)
        medians_of_tile(sample, d, columns, groups, size, centred ? middle : zeros, sums, variance);
}

/* By column the median over groups of neighbouring rows of the mean of x, and, unless there is no array for it, of
   (x − centre)², where the centre is that median, or zero. */
EXPORT int medians_of_means(const double *sample, int64_t d, int64_t groups, int64_t size, int centred, double *middle,
                            double *variance)
{
    double *sums = calloc((size_t)(groups * TILE), sizeof *sums);
    if (sums == NULL)
        return NO_MEMORY;
    for (int64_t j = 0; j < d; j += TILE) {
        double *about = variance ? variance + j : NULL;
        if (d - j >= TILE) /* known to the compiler: half of the time of any number of columns */
            moments_of_tile(sample + j, d, TILE, groups, size, centred, sums, middle + j, about);
        else
            moments_of_tile(sample + j, d, d - j, groups, size, centred, sums, middle + j, about);
    }
    free(sums);
    return DONE;
}

/* ‖(x − centre)/scale‖² of every row; divided before it is squared, since a scale may be huge. */
EXPORT int square_norms(const double *RESTRICT sample, int64_t m, int64_t d, const double *RESTRICT centre,
                        const double *RESTRICT scale, double *RESTRICT norms)
{
    double middle = d ? centre[0] : 0.0, by = d ? scale[0] : 1.0;
    for (int64_t i = 0; d == 1 && i < m; i++)
        norms[i] = square((sample[i] - middle) / by);
    if (d == 1)
        return DONE;
    for (int64_t i = 0; i < m; i++, sample += d) {
        double total = 0.0;
        SUM(total)
        for (int64_t j = 0; j < d; j++)
            total += square((sample[j] - centre[j]) / scale[j]);
        norms[i] = total;
    }
    return DONE;
}

/* (x − centre)/scale of every row, with a constant behind it: rows of d + 1 numbers. */
EXPORT int scale_rows(const double *RESTRICT rows, int64_t m, int64_t d, const double *RESTRICT centre,
                      const double *RESTRICT scale, double constant, double *RESTRICT scaled)
{
    for (int64_t i = 0; i < m; i++, rows += d, scaled += d + 1) {
        INDEPENDENT
        for (int64_t j = 0; j < d; j++)
            scaled[j] = (rows[j] - centre[j]) / scale[j];
        scaled[d] = constant;
    }
    return DONE;
}

/* Row for row ((x − centre)/scale, constant) times a square map; the number of columns is best known to the compiler. */
INLINED void map_rows(const double *RESTRICT rows, int64_t m, int64_t d, const double *RESTRICT centre,
                      const double *RESTRICT scale, double constant, const double *RESTRICT map, double *RESTRICT mapped)
{
    for (int64_t i = 0; i < m; i++, rows += d, mapped += d + 1) {
        for (int64_t k = 0; k <= d; k++)
            mapped[k] = constant * map[d * (d + 1) + k];
        for (int64_t j = 0; j < d; j++) {
            double z = (rows[j] - centre[j]) / scale[j];
            for (int64_t k = 0; k <= d; k++)
                mapped[k] += z * map[j * (d + 1) + k];
        }
    }
}

/* Rows scaled, with a constant behind them, times a square map of d + 1 rows. */
EXPORT int scale_and_map_rows(const double *rows, int64_t m, int64_t d, const double *centre, const double *scale,
                              double constant, const double *map, double *mapped)
{
    if (d == 1)
        map_rows(rows, m, 1, centre, scale, constant, map, mapped);
    else
        map_rows(rows, m, d, centre, scale, constant, map, mapped);
    return DONE;
}

/* product[a, b] += Σ z[a] z[b] for b ≥ a over TOGETHER rows of z. */
static void add_products(const double *RESTRICT z, int64_t d, double *RESTRICT product)
{
    const double *z1 = z + d, *z2 = z1 + d, *z3 = z2 + d;
    for (int64_t a = 0; a < d; a++) {
        double *row = product + a * d, first = z[a], second = z1[a], third = z2[a], fourth = z3[a];
        INDEPENDENT
        for (int64_t b = a; b < d; b++)
            row[b] += first * z[b] + second * z1[b] + (third * z2[b] + fourth * z3[b]);
    }
}

/* Sums to means, and the lower triangle from the upper one. */
static void finish_moments(int64_t count, int64_t d, double *mean, double *product)
{
    for (int64_t a = 0; a < d; a++) {
        mean[a] /= (double)(count ? count : 1);
        for (int64_t b = a; b < d; b++)
            product[b * d + a] = product[a * d + b] /= (double)(count ? count : 1);
    }
}

/* Number of rows with a finite norm up to the limit, and the means of z = (x − centre)/scale and of z zᵀ over them.

   Of the sample, one row in `step` is looked at: m of them. */
EXPORT int near_moments(const double *sample, int64_t m, int64_t d, int64_t step, const double *RESTRICT centre,
                        const double *RESTRICT scale, const double *norms, double limit, double *count,
                        double *RESTRICT mean, double *RESTRICT product)
{
    double *z = calloc((size_t)(TOGETHER * d), sizeof *z);
    int64_t near = 0;
    if (z == NULL)
        return NO_MEMORY;
    memset(mean, 0, (size_t)d * sizeof *mean);
    memset(product, 0, (size_t)(d * d) * sizeof *product);
    for (int64_t i = 0; i < m; i++, sample += step * d) {
        if (!(norms[i] <= limit && isfinite(norms[i])))
            continue;
        double *row = z + near++ % TOGETHER * d;
        INDEPENDENT
        for (int64_t j = 0; j < d; j++) {
            row[j] = (sample[j] - centre[j]) / scale[j];
            mean[j] += row[j];
        }
        if (near % TOGETHER == 0)
            add_products(z, d, product);
    }
    memset(z + near % TOGETHER * d, 0, (size_t)((TOGETHER - near % TOGETHER) * d) * sizeof *z);
    if (near % TOGETHER)
        add_products(z, d, product);
    finish_moments(near, d, mean, product);
    *count = (double)near;
    free(z);
    return DONE;
}
