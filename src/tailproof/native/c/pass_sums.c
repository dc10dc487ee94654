/* One pass over rows in pieces: sums of all levels, and what their judges need. A few rows at a time are copied column
   by column, and all that is asked of them is added up while they are in the nearest cache. */
#include "exp_log.h"
#include "lanes.h"

#define MOST 128          /* rows at a time */
#define LEAST 16
#define CACHE (20 * 1024) /* bytes of them, but for many columns */
#define SIDE_BY_SIDE 4    /* columns, or arrays, that share a reading of what they are multiplied with */
#define NOT_LEVELS 2      /* directions beside those of levels: how the noise grows, and to a second fit */

#define SQRT2 1.4142135623730951

/* What is asked for. Slopes are `columns` numbers each: of the levels, of the NOT_LEVELS other directions, and of sizes
   of residuals, t = log(|r − middle| + offset) − share ψ(r) for r of the first level, less their linear function. */
struct pass {
    int64_t columns, levels, guards, blocks, run, plain, directions;
    const double *slopes, *constants, *shifts;            /* what directions are less than products with slopes */
    const double *tau, *tukey, *centre, *reach;           /* the last two of Catoni's equation */
    const double *far_centre, *far_weight;                /* of how far rows are */
    const double *to_leverage, *leverage_constants;       /* `directions` times `columns`, and one each */
    double floor, size_tau, middle, offset, share;
    int64_t size_tukey;
};

/* Where sums go: those that are asked for in the first pass alone, or in later ones alone, are named in that order. */
struct totals {
    double *gradient, *value, *row, *row_squares, *sizes_by_column, *size_squares, *sizes;
    double *residuals, *squares, *weights;
    double *psi, *curves, *products, *reach, *apart, *apart_products;
};

/* Some rows: columns, and arrays of `few` numbers each that levels and directions make of them. */
struct rows {
    int64_t n, few;
    double *columns, *fitted, *pulls;
    const double *y;
    const int64_t *numbers;
    double weight[MOST], r[MOST], rho[MOST], away[MOST];
    int64_t guard[MOST];
};

static int64_t rows_at_a_time(int64_t d)
{
    int64_t most = CACHE / (8 * d + 8) / LEAST * LEAST;
    return most < LEAST ? LEAST : shorter(most, MOST);
}

/* number % count of rows whose numbers mostly follow each other: a division takes as long as the rest of a row. */
static void deal(const int64_t *numbers, int64_t n, int64_t count, int64_t *RESTRICT into)
{
    for (int64_t i = 0; i < n; i++) {
        bool next = i && numbers[i] == numbers[i - 1] + 1;
        int64_t following = next ? into[i - 1] + 1 : numbers[i] % count;
        into[i] = following < count ? following : 0;
    }
}

/* Copy the next rows column by column, a square of numbers at a time. */
static void take_columns(const struct rows *rows, int64_t d, const double *RESTRICT X)
{
    int64_t n = rows->n, few = rows->few, squares = n / WIDTH * WIDTH, wide = d / WIDTH * WIDTH;
    double *RESTRICT columns = rows->columns;
    turn_squares(X, d, squares, wide, columns, few);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i < squares ? wide : 0; j < d; j++)
            columns[j * few + i] = X[i * d + j];
}

/* Copy the next rows. */
static void take(struct rows *rows, const struct pass *pass, const double *X, const double *v, const int64_t *numbers)
{
    int64_t n = rows->n;
    take_columns(rows, pass->columns, X);
    for (int64_t i = 0; i < n; i++)
        rows->weight[i] = v ? v[i] : 1.0;
    deal(numbers, n, pass->guards, rows->guard);
    rows->numbers = numbers;
}

/* x'slopes of some rows, four columns at a time: numbers go through memory. */
static void products_of(const struct rows *rows, int64_t d, const double *slopes, double *RESTRICT into)
{
    int64_t n = rows->n, few = rows->few, j = 0;
    memset(into, 0, (size_t)n * sizeof *into);
    for (; j + SIDE_BY_SIDE <= d; j += SIDE_BY_SIDE) {
        const double *RESTRICT x = rows->columns + j * few, *RESTRICT y = x + few, *RESTRICT z = y + few;
        const double *RESTRICT u = z + few;
        double a = slopes[j], b = slopes[j + 1], c = slopes[j + 2], e = slopes[j + 3];
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            into[i] += (a * x[i] + b * y[i]) + (c * z[i] + e * u[i]);
    }
    for (; j < d; j++) {
        const double *RESTRICT x = rows->columns + j * few;
        double a = slopes[j];
        INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            into[i] += a * x[i];
    }
}

/* Add Σ by·x for `count` arrays x of `few` numbers each. */
static void add_products(const struct rows *rows, const double *RESTRICT by, const double *arrays, int64_t count,
                         double *sums)
{
    int64_t n = rows->n, few = rows->few, k = 0;
    for (; k + SIDE_BY_SIDE <= count; k += SIDE_BY_SIDE) {
        const double *RESTRICT x = arrays + k * few, *RESTRICT y = x + few, *RESTRICT z = y + few;
        const double *RESTRICT u = z + few;
        double a = 0.0, b = 0.0, c = 0.0, e = 0.0;
        SUM(a, b, c, e)
        for (int64_t i = 0; i < n; i++)
            a += by[i] * x[i], b += by[i] * y[i], c += by[i] * z[i], e += by[i] * u[i];
        sums[k] += a, sums[k + 1] += b, sums[k + 2] += c, sums[k + 3] += e;
    }
    for (; k < count; k++) {
        const double *RESTRICT x = arrays + k * few;
        double a = 0.0;
        SUM(a)
        for (int64_t i = 0; i < n; i++)
            a += by[i] * x[i];
        sums[k] += a;
    }
}

/* Σ x. */
static double total_of(const double *x, int64_t n)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* r of a level, vψ(r) and vρ(r). */
static void look_at_level(struct rows *rows, const struct pass *pass, int64_t level)
{
    const double *RESTRICT fitted = rows->fitted + level * rows->few, *RESTRICT y = rows->y, *RESTRICT v = rows->weight;
    double *RESTRICT r = rows->r, *RESTRICT rho = rows->rho, *RESTRICT psi = rows->pulls + level * rows->few;
    double tau = pass->tau[level], constant = pass->constants[level], inverse = 1.0 / (tau * tau), most = tau * tau / 6.0;
    if (pass->tukey[level] != 0.0) {
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++) {
            double rest = y[i] - constant - fitted[i], u = at_least(1.0 - rest * rest * inverse, 0.0);
            r[i] = rest, psi[i] = v[i] * (rest * u * u), rho[i] = v[i] * (most * (1.0 - u * u * u));
        }
    } else {
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++) {
            double rest = y[i] - constant - fitted[i], inside = clip(rest, -tau, tau);
            r[i] = rest, psi[i] = v[i] * inside, rho[i] = v[i] * (inside * (rest - 0.5 * inside));
        }
    }
}

/* Add Σ vt, Σ vt², Σ vtx of the sizes t of residuals r. */
static void add_sizes(struct rows *rows, const struct pass *pass, const struct totals *into)
{
    int64_t n = rows->n, d = pass->columns, at = pass->levels + NOT_LEVELS;
    double *RESTRICT t = rows->fitted + at * rows->few, *RESTRICT weighted = rows->rho, square = 0.0;
    const double *RESTRICT r = rows->r, *RESTRICT v = rows->weight;
    double tau = pass->size_tau, inverse = 1.0 / (tau * tau), constant = pass->constants[at];
    products_of(rows, d, pass->slopes + at * d, t);
    SUM(square)
    for (int64_t i = 0; i < n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0);
        double psi = pass->size_tukey ? r[i] * u * u : clip(r[i], -tau, tau);
        double size = log_of(fabs(r[i] - pass->middle) + pass->offset) - pass->share * psi - t[i] - constant;
        weighted[i] = v[i] * size;
        square += weighted[i] * size;
    }
    *into->size_squares += square;
    add_products(rows, weighted, rows->columns, d, into->sizes_by_column);
    into->sizes_by_column[d] += total_of(weighted, n);
}

/* Add Σ v, Σ vr and Σ vr² of a level by blocks, to which rows go in runs of their numbers. */
static void add_blocks(const struct rows *rows, int64_t run, int64_t k, int64_t level, const struct totals *into)
{
    for (int64_t start = 0, end; start < rows->n; start = end) {
        int64_t of = rows->numbers[start] / run, block = of % k;
        double total = 0.0, sum = 0.0, square = 0.0;
        for (end = start + 1; end < rows->n && rows->numbers[end] < (of + 1) * run;)
            end++;
        SUM(total, sum, square)
        for (int64_t i = start; i < end; i++) {
            double weighted = rows->weight[i] * rows->r[i];
            total += rows->weight[i], sum += weighted, square += weighted * rows->r[i];
        }
        into->weights[block] += level ? 0.0 : total;
        into->residuals[level * k + block] += sum;
        into->squares[level * k + block] += square;
    }
}

/* Add Σ vψ′(r) and Σ vψ′(r)r of a level, and those of Catoni's equation, ψ(x) = x − x³/6 up to √2. */
static void add_moments(const struct rows *rows, const struct pass *pass, int64_t level, const struct totals *into)
{
    const double *RESTRICT r = rows->r, *RESTRICT v = rows->weight;
    double tau = pass->tau[level], inverse = 1.0 / (tau * tau), floor = pass->floor;
    double steep = 0.0, inside = 0.0, top = 0.0, slope = 0.0;
    bool tukey = pass->tukey[level] != 0.0;
    SUM(steep, inside)
    for (int64_t i = 0; i < rows->n; i++) {
        double u = at_least(1.0 - r[i] * r[i] * inverse, 0.0);
        double share = v[i] * (tukey ? u * (5.0 * u - 4.0) : fabs(r[i]) <= tau ? 1.0 : floor);
        steep += share, inside += share * r[i];
    }
    into->curves[2 * level] += steep, into->curves[2 * level + 1] += inside;
    if (!(pass->reach[level] > 0.0))
        return;
    double centre = pass->centre[level], by = 1.0 / pass->reach[level];
    SUM(top, slope)
    for (int64_t i = 0; i < rows->n; i++) {
        double x = (r[i] - centre) * by, within = clip(x, -SQRT2, SQRT2), square = within * within;
        top += v[i] * within * (1.0 - square * (1.0 / 6.0));
        slope += v[i] * (fabs(x) <= SQRT2 ? 1.0 - 0.5 * square : 0.0);
    }
    into->psi[2 * level] += top, into->psi[2 * level + 1] += slope;
}

/* Add what every pass asks of rows and of their levels. */
static void add_levels(struct rows *rows, const struct pass *pass, bool first, const struct totals *into)
{
    int64_t d = pass->columns;
    for (int64_t level = 0; level < pass->levels; level++) {
        double *gradient = into->gradient + level * (d + 1), *pulls = rows->pulls + level * rows->few;
        double *value = into->value + level * pass->guards;
        products_of(rows, d, pass->slopes + level * d, rows->fitted + level * rows->few);
        look_at_level(rows, pass, level);
        for (int64_t i = 0; i < rows->n; i++)
            value[rows->guard[i]] += rows->rho[i];
        add_products(rows, pulls, rows->columns, d, gradient);
        gradient[d] += total_of(pulls, rows->n);
        if (first)
            add_blocks(rows, pass->run, pass->blocks, level, into);
        else
            add_moments(rows, pass, level, into);
        if (level == 0)
            add_sizes(rows, pass, into);
    }
}

/* Add Σ vx, Σ vx², Σ v, Σ v² and the number of rows. */
static void add_rows(struct rows *rows, int64_t d, const struct totals *into)
{
    int64_t n = rows->n;
    add_products(rows, rows->weight, rows->columns, d, into->row);
    for (int64_t j = 0; j < d; j++) {
        const double *RESTRICT x = rows->columns + j * rows->few;
        double square = 0.0;
        SUM(square)
        for (int64_t i = 0; i < n; i++)
            square += rows->weight[i] * x[i] * x[i];
        into->row_squares[j] += square;
    }
    into->sizes[0] += total_of(rows->weight, n), into->sizes[2] += (double)n;
    add_products(rows, rows->weight, rows->weight, 1, into->sizes + 1);
}

/* How far rows are: Σ weight (x − centre)². */
static void look_at_reach(struct rows *rows, const struct pass *pass)
{
    memset(rows->away, 0, sizeof rows->away);
    for (int64_t j = 0; j < pass->columns; j++) {
        const double *RESTRICT x = rows->columns + j * rows->few;
        double centre = pass->far_centre[j], weight = pass->far_weight[j];
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++)
            rows->away[i] += weight * (x[i] - centre) * (x[i] - centre);
    }
}

/* Leverages: squares of x'map + constant in all directions. */
static void look_at_leverages(struct rows *rows, const struct pass *pass)
{
    memset(rows->away, 0, sizeof rows->away);
    for (int64_t k = 0; k < pass->directions; k++) {
        double constant = pass->leverage_constants[k];
        products_of(rows, pass->columns, pass->to_leverage + k * pass->columns, rows->rho);
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++)
            rows->away[i] += (rows->rho[i] + constant) * (rows->rho[i] + constant);
    }
}

/* Add Σ vh and Σ v²hψψ of every two levels, with the reach h of rows. */
static void add_reach(struct rows *rows, const struct pass *pass, const struct totals *into)
{
    int64_t m = pass->levels;
    double *RESTRICT root = rows->rho;
    add_products(rows, rows->weight, rows->away, 1, into->reach);
    for (int64_t i = 0; i < rows->n; i++)
        root[i] = sqrt(rows->away[i]);
    for (int64_t level = 0; level < m; level++) {
        double *RESTRICT own = rows->pulls + level * rows->few;
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++)
            own[i] *= root[i];
        add_products(rows, own, rows->pulls, level + 1, into->products + level * m);
    }
}

/* Add Σ va and Σ vaa' of the directions a: least squares less each level, and others. */
static void add_apart(struct rows *rows, const struct pass *pass, const struct totals *into)
{
    int64_t m = pass->levels, count = m + NOT_LEVELS, few = rows->few;
    double plain[MOST];
    for (int64_t k = m; k < count; k++)
        products_of(rows, pass->columns, pass->slopes + k * pass->columns, rows->fitted + k * few);
    memcpy(plain, rows->fitted + pass->plain * few, (size_t)rows->n * sizeof *plain);
    for (int64_t k = 0; k < count; k++) {
        double *RESTRICT a = rows->fitted + k * few, *RESTRICT weighted = rows->rho, shift = pass->shifts[k];
        INDEPENDENT
        for (int64_t i = 0; i < rows->n; i++) {
            a[i] = (k < m ? plain[i] - a[i] : a[i]) - shift;
            weighted[i] = rows->weight[i] * a[i];
        }
        into->apart[k] += total_of(weighted, rows->n);
        add_products(rows, weighted, rows->fitted, k + 1, into->apart_products + k * count);
    }
}

/* The upper triangle of a symmetric matrix from the lower one. */
static void mirror(double *matrix, int64_t count)
{
    for (int64_t a = 0; a < count; a++)
        for (int64_t b = 0; b < a; b++)
            matrix[b * count + a] = matrix[a * count + b];
}

/* Add all sums of n rows with targets, weights or none, which are ones, and numbers; how far each row is goes into
   `away`: its leverage in the first pass, and its reach in others. */
EXPORT int pass_sums(const double *X, int64_t n, const double *y, const double *v, const int64_t *numbers,
                     const struct pass *pass, int first, const struct totals *into, double *away)
{
    int64_t d = pass->columns, m = pass->levels;
    struct rows rows;
    rows.few = rows_at_a_time(d);
    rows.columns = malloc((size_t)(rows.few * (d + 2 * m + NOT_LEVELS + 1)) * sizeof(double));
    if (rows.columns == NULL)
        return NO_MEMORY;
    rows.fitted = rows.columns + rows.few * d, rows.pulls = rows.fitted + rows.few * (m + NOT_LEVELS + 1);
    for (int64_t start = 0; start < n; start += rows.n) {
        rows.n = shorter(rows.few, n - start), rows.y = y + start;
        take(&rows, pass, X + start * d, v ? v + start : NULL, numbers + start);
        add_rows(&rows, d, into);
        add_levels(&rows, pass, first != 0, into);
        if (first) {
            look_at_leverages(&rows, pass);
        } else {
            look_at_reach(&rows, pass);
            add_reach(&rows, pass, into);
            add_apart(&rows, pass, into);
        }
        memcpy(away + start, rows.away, (size_t)rows.n * sizeof *away);
    }
    if (!first) {
        mirror(into->products, m);
        mirror(into->apart_products, m + NOT_LEVELS);
    }
    free(rows.columns);
    return DONE;
}
