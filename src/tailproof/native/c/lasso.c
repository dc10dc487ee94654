/* Accelerated proximal steps for truncated residuals with an l1 penalty; few columns, dense. */
#include "common.h"

#define POWERS 60        /* iterations for an eigenvalue */
#define ROUGHLY 0.0005   /* its change in the last of them */
#define SPARE 1.04       /* times that, for what further iterations would add */

/* Rows of some columns, with targets and shares of the rows. */
typedef struct {
    const double *A, *y, *shares;
    int64_t n, d;
    double tau;
} problem_rows;

static double product(const double *RESTRICT x, const double *RESTRICT y, int64_t d)
{
    double sum = 0.0;
    SUM(sum)
    for (int64_t j = 0; j < d; j++)
        sum += x[j] * y[j];
    return sum;
}

static void add(double *RESTRICT sum, double times, const double *RESTRICT x, int64_t d)
{
    INDEPENDENT
    for (int64_t j = 0; j < d; j++)
        sum[j] += times * x[j];
}

/* A'V(A v), or with targets A'Vψ(y − A v). */
static void pulled(const problem_rows *rows, const double *v, bool targets, double *found)
{
    memset(found, 0, (size_t)rows->d * sizeof *found);
    for (int64_t i = 0; i < rows->n; i++) {
        const double *row = rows->A + i * rows->d;
        double p = product(row, v, rows->d);
        p = targets ? clip(rows->y[i] - p, -rows->tau, rows->tau) : p;
        add(found, rows->shares[i] * p, row, rows->d);
    }
}

/* The largest eigenvalue of A'VA, rather too large than too small: it only sets the length of steps. */
static double largest_eigenvalue(const problem_rows *rows, double *v, double *image)
{
    double size = 0.0;
    for (int64_t j = 0; j < rows->d; j++)
        v[j] = 1.0;
    for (int round = 0; round < POWERS; round++) {
        double before = size, length = at_least(sqrt(product(v, v, rows->d)), 1e-300);
        for (int64_t j = 0; j < rows->d; j++)
            v[j] /= length;
        pulled(rows, v, false, image);
        memcpy(v, image, (size_t)rows->d * sizeof *v);
        size = sqrt(product(v, v, rows->d));
        if (size - before <= ROUGHLY * size)
            break;
    }
    return at_least(size * SPARE, 1e-300);
}

/* θ that minimises Σ vρ(y − Aθ) + Σ limit|θ|, from θ on entry, by up to so many steps (Beck & Teboulle, 2009), until
   one is within a tolerance of θ. The momentum starts anew where it leads astray. */
EXPORT int proximal_steps(const double *A, const double *y, const double *shares, int64_t n, int64_t d, double tau,
                          const double *limit, int64_t steps, double tolerance, double *theta)
{
    problem_rows rows = {A, y, shares, n, d, tau};
    double *ahead = malloc((size_t)(2 * d) * sizeof *ahead), *gradient = ahead + d;
    if (ahead == NULL)
        return NO_MEMORY;
    double step = 1.0 / largest_eigenvalue(&rows, ahead, gradient), momentum = 1.0;
    memcpy(ahead, theta, (size_t)d * sizeof *ahead);
    for (int64_t number = 0; number < steps; number++) {
        double astray = 0.0, moved = 0.0, length = 0.0;
        pulled(&rows, ahead, true, gradient);
        for (int64_t j = 0; j < d; j++) {
            double target = ahead[j] + step * gradient[j], less = fabs(target) - step * limit[j];
            double following = less > 0.0 ? copysign(less, target) : 0.0, change = following - theta[j];
            astray += (ahead[j] - following) * change;
            moved += change * change;
            length += following * following;
            ahead[j] = following;
            gradient[j] = change;
        }
        momentum = astray > 0.0 ? 1.0 : momentum;
        double grown = 0.5 * (1.0 + sqrt(1.0 + 4.0 * momentum * momentum));
        for (int64_t j = 0; j < d; j++) {
            theta[j] = ahead[j];
            ahead[j] += (momentum - 1.0) / grown * gradient[j];
        }
        momentum = grown;
        if (moved <= tolerance * tolerance * length)
            break;
    }
    free(ahead);
    return DONE;
}
