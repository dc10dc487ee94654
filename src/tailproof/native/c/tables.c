/* Tables on their way to numbers: quotes in text, extents of columns, columns to rows. */
#include "common.h"

/* Where a text stands between two of its pieces. */
enum place { OUTSIDE = 0, WITHIN_QUOTES, DOUBTFUL };

/* Whether a cell begins after this character; −1 is the beginning of the text. */
static bool begins_cell(int before, int delimiter)
{
    return before < 0 || before == delimiter || before == '\n' || before == '\r';
}

/* The first quote from here on, or the end; NULL if a line ends before. */
static const char *closing_quote(const char *here, const char *end)
{
    for (; here < end && *here != '"'; here++)
        if (*here == '\n' || *here == '\r')
            return NULL;
    return here;
}

/* Go on through a piece of text: state[0] is the place, state[1] the last character, −1 before the first piece.

   DOUBTFUL once a line ends within quotes, or a quote stands inside of a cell, where readers differ. */
EXPORT int follow_quotes(const char *text, int64_t n, int64_t delimiter, int64_t *state)
{
    const char *here = text, *end = text + n;
    bool within = state[0] == WITHIN_QUOTES;
    while (here < end && state[0] != DOUBTFUL) {
        if (within) {
            here = closing_quote(here, end);
        } else {
            const char *quote = memchr(here, '"', (size_t)(end - here));
            int before = quote == NULL || quote > text ? (quote ? (unsigned char)quote[-1] : '\n') : (int)state[1];
            /* Two quotes within a cell are one of its characters: it closes and opens again. */
            here = quote == NULL ? end : before == '"' || begins_cell(before, (int)delimiter) ? quote : NULL;
        }
        if (here == NULL) {
            state[0] = DOUBTFUL;
        } else if (here < end) {
            within = !within;
            here++;
        }
    }
    if (n > 0)
        state[1] = (unsigned char)text[n - 1];
    if (state[0] != DOUBTFUL)
        state[0] = within ? WITHIN_QUOTES : OUTSIDE;
    return DONE;
}

#define LANES 8 /* sums and extremes at once */

/* Sum, smallest and largest of n numbers; without a meaning unless the sum is finite. */
EXPORT int extent(const double *RESTRICT numbers, int64_t n, double *RESTRICT found)
{
    double sum[LANES] = {0.0}, low[LANES], high[LANES];
    for (int j = 0; j < LANES; j++) {
        low[j] = INFINITY;
        high[j] = -INFINITY;
    }
    for (int64_t i = 0; i < n; i += LANES) {
        int count = (int)shorter(LANES, n - i);
        for (int j = 0; j < count; j++) {
            double x = numbers[i + j];
            sum[j] += x;
            low[j] = x < low[j] ? x : low[j];
            high[j] = x > high[j] ? x : high[j];
        }
    }
    for (int j = 1; j < LANES; j++) {
        sum[0] += sum[j];
        low[0] = low[j] < low[0] ? low[j] : low[0];
        high[0] = high[j] > high[0] ? high[j] : high[0];
    }
    found[0] = sum[0];
    found[1] = low[0];
    found[2] = high[0];
    return DONE;
}

#define TOGETHER 256 /* rows that are written column by column: they stay in the fastest cache */

/* Write m numbers of each of d columns into rows of some width, column j at places[j], and add up each column. */
EXPORT int columns_to_rows(const double *const *columns, const int64_t *places, int64_t m, int64_t d, int64_t width,
                           double *rows, double *sums)
{
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int64_t start = 0; start < m; start += TOGETHER) {
        int64_t count = shorter(TOGETHER, m - start);
        for (int64_t j = 0; j < d; j++) {
            const double *RESTRICT column = columns[j] + start;
            double sum = 0.0;
            SUM(sum)
            for (int64_t i = 0; i < count; i++)
                sum += column[i];
            sums[j] += sum;
        }
        for (int64_t i = start; i < start + count; i++) {
            double *RESTRICT out = rows + i * width;
            for (int64_t j = 0; j < d; j++)
                out[places[j]] = columns[j][i];
        }
    }
    return DONE;
}

/* Write a one where each of m codes says, from a place on, and zeros beside it; a code beyond the levels is none. */
EXPORT int codes_to_rows(const int32_t *RESTRICT codes, int64_t m, int64_t levels, int64_t width, int64_t place,
                         double *RESTRICT rows)
{
    double *RESTRICT out = rows + place;
    for (int64_t i = 0; i < m; i++, out += width) {
        for (int64_t j = 0; j < levels; j++)
            out[j] = 0.0;
        if (0 <= codes[i] && codes[i] < levels)
            out[codes[i]] = 1.0;
    }
    return DONE;
}
