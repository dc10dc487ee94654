/* Rough centres and scales of columns, from a sample of rows. */
#include "common.h"

static double square(double x) { return x * x; }

/* Sort every column of some rows, all columns at once; NaN counts as larger than every number.

   By odd-even transposition: more exchanges than a quick sort of each column, but no branch that depends on the
   values, so that they vectorise over the columns. */
static void sort_columns(double *rows, int64_t n, int64_t d)
{
    for (int64_t round = 0; round < n; round++)
        for (int64_t i = round % 2; i + 1 < n; i += 2) {
            double *RESTRICT a = rows + i * d, *RESTRICT b = a + d;
            INDEPENDENT
            for (int64_t j = 0; j < d; j++) {
                double first = a[j], second = b[j];
                bool exchanged = first > second || first != first;
                a[j] = exchanged ? second : first;
                b[j] = exchanged ? first : second;
            }
        }
}

/* Sum of x, or of (x − centre)², of every column over a group of rows. */
static void add_group(const double *RESTRICT rows, int64_t size, int64_t d, const double *RESTRICT centre,
                      double *RESTRICT sums)
{
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int64_t i = 0; i < size; i++, rows += d) {
        if (centre) {
            INDEPENDENT
            for (int64_t j = 0; j < d; j++)
                sums[j] += square(rows[j] - centre[j]);
        } else {
            INDEPENDENT
            for (int64_t j = 0; j < d; j++)
                sums[j] += rows[j];
        }
    }
}

/* Median over groups of neighbouring rows of the mean of x, or, given a centre, of (x − centre)², by column. */
EXPORT int medians_of_means(const double *sample, int64_t d, int64_t groups, int64_t size, const double *centre,
                            double *medians)
{
    double *means = malloc((size_t)(groups * d) * sizeof *means);
    if (means == NULL)
        return NO_MEMORY;
    for (int64_t g = 0; g < groups; g++)
        add_group(sample + g * size * d, size, d, centre, means + g * d);
    for (int64_t j = 0; j < groups * d; j++)
        means[j] /= (double)size;
    sort_columns(means, groups, d);
    const double *lower = means + (groups - 1) / 2 * d, *upper = means + groups / 2 * d;
    for (int64_t j = 0; j < d; j++)
        medians[j] = lower[j] / 2.0 + upper[j] / 2.0; /* their sum may overflow */
    free(means);
    return DONE;
}

/* ‖(x − centre)/scale‖² of every row; divided before it is squared, since a scale may be huge. */
EXPORT int square_norms(const double *RESTRICT sample, int64_t m, int64_t d, const double *RESTRICT centre,
                        const double *RESTRICT scale, double *RESTRICT norms)
{
    for (int64_t i = 0; i < m; i++, sample += d) {
        double total = 0.0;
        SUM(total)
        for (int64_t j = 0; j < d; j++)
            total += square((sample[j] - centre[j]) / scale[j]);
        norms[i] = total;
    }
    return DONE;
}
