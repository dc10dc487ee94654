/* Truncated residuals with an l1 penalty, by coordinate descent on a working set of columns that grows; dense. */
#include "common.h"

/* Columns (the last is a constant without a penalty), targets and shares of the rows, and how far to go. */
typedef struct {
    const double *columns, *y, *shares;
    int64_t n, d;
    double tau, tolerance;
    int64_t sweeps, rounds, growth, room; /* at most; `growth` is the least number of columns that a round may add */
} lasso;

/* Residuals, their pulls vψ(r), θ, Σ vz² of every column, and the numbers of the columns in use. */
typedef struct {
    double *r, *pull, *theta, *squares;
    int64_t *used, count;
    bool *in_use;
} lasso_state;

/* A column that asks to be used, and how urgently. */
typedef struct {
    double size;
    int64_t column;
} asking;

/* Σ vψ(r)z of one column. */
static double pull_along(const lasso *all, const double *RESTRICT r, const double *RESTRICT z)
{
    const double *RESTRICT v = all->shares;
    double sum = 0.0, tau = all->tau;
    SUM(sum)
    for (int64_t i = 0; i < all->n; i++)
        sum += v[i] * clip(r[i], -tau, tau) * z[i];
    return sum;
}

/* r −= times · z. */
static void subtract(double *RESTRICT r, double times, const double *RESTRICT z, int64_t n)
{
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        r[i] -= times * z[i];
}

/* θ of one column at the minimum of a parabola above the objective, whose curvature is Σ vz²; what it moved. */
static double move(const lasso *all, lasso_state *now, int64_t j, double penalty)
{
    const double *z = all->columns + j * all->n;
    if (!(now->squares[j] > 0.0))
        return 0.0;
    double target = now->theta[j] + pull_along(all, now->r, z) / now->squares[j];
    double less = fabs(target) - (j + 1 < all->d ? penalty / now->squares[j] : 0.0);
    double change = (less > 0.0 ? copysign(less, target) : 0.0) - now->theta[j];
    if (change != 0.0)
        subtract(now->r, change, z, all->n);
    now->theta[j] += change;
    return change;
}

/* Sweeps over the columns in use, until one moves θ by no more than a share of it. */
static void descend(const lasso *all, lasso_state *now, double penalty)
{
    double moved = INFINITY, length = 0.0;
    for (int64_t sweep = 0; sweep < all->sweeps && moved > all->tolerance * all->tolerance * length; sweep++) {
        moved = length = 0.0;
        for (int64_t k = 0; k < now->count; k++) {
            int64_t j = now->used[k];
            double change = move(all, now, j, penalty);
            moved += now->squares[j] * change * change;
            length += now->squares[j] * now->theta[j] * now->theta[j];
        }
    }
}

/* Order of columns: the largest first, the first of equal ones. */
static int by_size(const void *a, const void *b)
{
    const asking *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : (x->column > y->column) - (x->column < y->column);
}

/* Use the columns that the penalty does not hold back, the most urgent first; false where there is none, or no room. */
static bool grow(const lasso *all, lasso_state *now, double penalty, asking *list)
{
    int64_t found = 0, room = now->count > all->growth ? now->count : all->growth;
    room = shorter(room, all->room - now->count);
    for (int64_t i = 0; i < all->n; i++)
        now->pull[i] = all->shares[i] * clip(now->r[i], -all->tau, all->tau);
    for (int64_t j = 0; j + 1 < all->d; j++) {
        if (now->in_use[j])
            continue;
        const double *z = all->columns + j * all->n;
        double sum = 0.0;
        SUM(sum)
        for (int64_t i = 0; i < all->n; i++)
            sum += now->pull[i] * z[i];
        if (fabs(sum) > penalty * (1.0 + all->tolerance))
            list[found++] = (asking){fabs(sum), j};
    }
    if (found == 0 || room <= 0)
        return false;
    qsort(list, (size_t)found, sizeof *list, by_size);
    for (int64_t k = 0; k < shorter(room, found); k++) {
        now->used[now->count++] = list[k].column;
        now->in_use[list[k].column] = true;
    }
    return true;
}

/* θ for one penalty, from where it is. */
static void solve(const lasso *all, lasso_state *now, double penalty, asking *list)
{
    now->count = 0;
    for (int64_t j = 0; j < all->d; j++) {
        now->in_use[j] = j + 1 == all->d || now->theta[j] != 0.0;
        if (now->in_use[j])
            now->used[now->count++] = j;
    }
    for (int64_t round = 0; round < all->rounds; round++) {
        descend(all, now, penalty);
        if (!grow(all, now, penalty, list))
            break;
    }
}

/* r = y − z'θ, and Σ vz² of every column. */
static void start(const lasso *all, lasso_state *now)
{
    memcpy(now->r, all->y, (size_t)all->n * sizeof *now->r);
    for (int64_t j = 0; j < all->d; j++) {
        const double *z = all->columns + j * all->n, *v = all->shares;
        double sum = 0.0;
        SUM(sum)
        for (int64_t i = 0; i < all->n; i++)
            sum += v[i] * z[i] * z[i];
        now->squares[j] = sum;
        if (now->theta[j] != 0.0)
            subtract(now->r, now->theta[j], z, all->n);
    }
}

/* How many entries of θ are not zero. */
static int64_t columns_of(const double *theta, int64_t d)
{
    int64_t count = 0;
    for (int64_t j = 0; j < d; j++)
        count += theta[j] != 0.0;
    return count;
}

/* θ (a row a penalty) that minimises Σ vρ(y − z'θ) + penalty Σ|θ|, for penalties from strong to weak, each from the one
   before, the first from `theta` on entry; up to the first, which is not `made`, of more than so many columns. `limits`
   are sweeps, rounds, growth and room of a working set, and that number. */
EXPORT int lasso_path(const double *columns, const double *y, const double *shares, int64_t n, int64_t d, double tau,
                      const double *penalties, int64_t count, double tolerance, const int64_t *limits, double *theta,
                      int64_t *made)
{
    lasso all = {columns, y, shares, n, d, tau, tolerance, limits[0], limits[1], limits[2], limits[3]};
    double *memory = malloc((size_t)(2 * n + 2 * d) * sizeof *memory);
    int64_t *used = malloc((size_t)d * sizeof *used);
    bool *in_use = malloc((size_t)d * sizeof *in_use);
    asking *list = malloc((size_t)d * sizeof *list);
    int status = memory && used && in_use && list ? DONE : NO_MEMORY;
    *made = 0;
    if (status == DONE) {
        lasso_state now = {memory, memory + n, memory + 2 * n, memory + 2 * n + d, used, 0, in_use};
        memcpy(now.theta, theta, (size_t)d * sizeof *theta);
        start(&all, &now);
        for (int64_t k = 0; k < count; k++) {
            solve(&all, &now, penalties[k], list);
            if (columns_of(now.theta, d) > limits[4])
                break;
            memcpy(theta + k * d, now.theta, (size_t)d * sizeof *theta);
            *made = k + 1;
        }
    }
    free(memory);
    free(used);
    free(in_use);
    free(list);
    return status;
}
