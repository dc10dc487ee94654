/* Newton's method for all levels of truncation at once; few columns, rows in memory. */
#include "factors.h"
#include "few_rows.h"
#include "order.h"

#define MOST_UNDONE 0.9 /* share of the last step */

/* What a search has in common for all levels. */
typedef struct {
    int64_t passes, tukey_steps;     /* at most; Tukey's ψ may take fewer */
    bool chord, few;                 /* keep the first Hessian; make a new one for every step */
    bool corrects;                   /* steps by what earlier ones have achieved */
    double total, damping, reused, contraction;
    double polished; /* roots of the mean loss that may be left, as the last two steps tell */
    const double *ridge, *slopes, *tolerance; /* `slopes` is the matrix S of a penalty λφ'Sφ/2 */
    const double *lean;                       /* of every level (last axis), added to its gradient; or none */
} search;

/* One level: where it is, its last good place and step, and the factors of the system that gives steps. */
typedef struct {
    double *phi, *accepted, *step, *factors, *taken; /* the last has all steps since the first Hessian */
    int64_t *pivots, steps;
    double best;
    bool known, refresh, settled;
} walker;

/* √Σ x². */
static double norm(const double *x, int64_t d)
{
    double sum = 0.0;
    for (int64_t j = 0; j < d; j++)
        sum += x[j] * x[j];
    return sqrt(sum);
}

/* The share of a step in the direction of another. */
static double share_along(const double *step, const double *other, int64_t d)
{
    double square = 0.0, product = 0.0;
    for (int64_t a = 0; a < d; a++) {
        product += step[a] * other[a];
        square += other[a] * other[a];
    }
    return product / larger(square, 1e-300);
}

/* The step of Broyden's method, given that of the first system and all steps taken since. */
static void correct(double *step, const double *taken, int64_t steps, int64_t d)
{
    for (int64_t s = 0; s + 1 < steps; s++, taken += d) {
        double share = share_along(step, taken, d);
        for (int64_t a = 0; a < d; a++)
            step[a] += share * taken[d + a];
    }
    double share = steps ? share_along(step, taken, d) : 0.0;
    /* A step that undoes the last one would be without end: it stays what it is. */
    for (int64_t a = 0; share < MOST_UNDONE && a < d; a++)
        step[a] /= 1.0 - share;
}

/* H/total + λS + damping, factorised, from the sums of a level, which are `count` numbers apart. */
static bool make_system(walker *own, const search *all, double ridge, const double *hessian, int64_t count, int64_t d)
{
    for (int64_t a = 0; a < d; a++)
        for (int64_t b = 0; b < d; b++) {
            int64_t place = a < b ? b * d + a : a * d + b; /* the lower half is there */
            double sum = hessian[place * count] / all->total + ridge * all->slopes[a * d + b];
            own->factors[a * d + b] = sum + (a == b ? all->damping : 0.0);
        }
    own->known = true;
    return factorise(own->factors, own->pivots, d);
}

/* One step of a level: Newton's if the last one was good, else half of that. `g` is the gradient of its sums; `lean`
   has the numbers of all levels `count` apart. */
static void advance(walker *own, const search *all, double ridge, double value, double *g, double close,
                    const double *lean, int64_t count, int64_t d)
{
    double merit = value / all->total, before = norm(own->step, d), length, left;
    double enough = all->polished * sqrt(at_least(merit, 0.0));
    for (int64_t a = 0; a < d; a++) {
        double pull = 0.0;
        for (int64_t b = 0; b < d; b++)
            pull += all->slopes[a * d + b] * own->phi[b];
        double more = lean ? lean[a * count] : 0.0;
        g[a] = g[a] / all->total - ridge * pull + more;
        merit += own->phi[a] * (0.5 * ridge * pull - more);
    }
    solve(own->factors, own->pivots, d, g);
    bool better = merit <= own->best + 1e-12 * fabs(own->best);
    own->steps = better ? own->steps : 0;
    if (all->corrects)
        correct(g, own->taken, own->steps, d);
    if (better) {
        own->best = merit;
        memcpy(own->accepted, own->phi, (size_t)d * sizeof *g);
        memcpy(own->step, g, (size_t)d * sizeof *g);
    } else {
        for (int64_t a = 0; a < d; a++)
            own->step[a] *= 0.5;
    }
    for (int64_t a = 0; a < d; a++)
        own->phi[a] = own->accepted[a] + own->step[a];
    if (all->corrects)
        memcpy(own->taken + d * own->steps++, own->step, (size_t)d * sizeof *g);
    length = norm(own->step, d);
    left = before > 0.0 ? length * length / before : INFINITY;
    own->settled = length <= close * norm(own->accepted, d) || left <= enough;
    own->refresh = all->few || (length > all->contraction * before && !own->settled);
}

/* A level that has settled rests; where passes need gradients alone it goes on while others do. */
static bool rests(const walker *own, bool chord) { return own->settled && !chord; }

/* Sums over all rows of the levels that still move, with Hessians where they need new ones. */
static void add_rows(few_rows *rows, const levels *every, const walker *walkers, bool chord, const double *Z,
                     const double *y, const double *weights, int64_t n, int64_t d, double *value, double *gradient,
                     double *hessian)
{
    for (int64_t start = 0; start < n; start += rows->n) {
        take(rows, Z, y, weights, start, n, d);
        for (int64_t level = 0; level < every->count; level++) {
            const walker *own = walkers + level;
            bool again = !own->known || (own->refresh && !chord);
            if (!rests(own, chord))
                add_level(rows, every, level, value, gradient, again ? hessian : NULL);
        }
    }
}

/* Sums of a level become zero. */
static void forget(int64_t level, int64_t count, int64_t d, double *value, double *gradient, double *hessian)
{
    value[level] = 0.0;
    for (int64_t a = 0; a < d; a++)
        gradient[a * count + level] = 0.0;
    for (int64_t a = 0; hessian && a < d * d; a++)
        hessian[a * count + level] = 0.0;
}

/* One pass and one step of every level that still moves; false where a system is singular. */
static bool pass(few_rows *rows, const levels *every, walker *walkers, const search *all, int64_t number,
                 const double *Z, const double *y, const double *weights, int64_t n, int64_t d, double *phi,
                 double *value, double *gradient, double *hessian)
{
    int64_t count = every->count;
    double g[FEW];
    for (int64_t level = 0; level < count; level++) {
        walker *own = walkers + level;
        bool again = !own->known || (own->refresh && !all->chord);
        if (!rests(own, all->chord))
            forget(level, count, d, value, gradient, again ? hessian : NULL);
    }
    add_rows(rows, every, walkers, all->chord, Z, y, weights, n, d, value, gradient, hessian);
    for (int64_t level = 0; level < count; level++) {
        walker *own = walkers + level;
        bool again = !own->known || (own->refresh && !all->chord);
        if (rests(own, all->chord))
            continue;
        if (again && !make_system(own, all, all->ridge[level], hessian + level, count, d))
            return false;
        for (int64_t a = 0; a < d; a++)
            g[a] = gradient[a * count + level];
        /* With Hessians that were used before, the error left is a share of the step, not its square. */
        double close = all->tolerance[level] * (again || all->chord ? 1.0 : all->reused);
        const double *lean = all->lean ? all->lean + level : NULL;
        advance(own, all, all->ridge[level], value[level], g, close, lean, count, d);
        for (int64_t a = 0; a < d; a++)
            phi[a * count + level] = own->phi[a];
        if (number + 1 >= all->tukey_steps && every->tukey[level] != 0.0)
            own->settled = true;
    }
    return true;
}

/* Whether no level moves any more. */
static bool all_settled(const walker *walkers, int64_t count)
{
    for (int64_t level = 0; level < count; level++)
        if (!walkers[level].settled)
            return false;
    return true;
}

/* Memory of all levels, handed out to them; they start at φ, with the systems given, if any. */
static bool start_walkers(walker *walkers, double *memory, int64_t size, int64_t *pivots, const double *phi,
                          const double *systems, int64_t count, int64_t d)
{
    for (int64_t level = 0; level < count; level++, memory += size, pivots += d) {
        double *factors = memory + 3 * d, *taken = factors + d * d;
        walker own = {memory, memory + d, memory + 2 * d, factors, taken, pivots, 0, INFINITY, systems != NULL, true, false};
        for (int64_t a = 0; a < d; a++) {
            own.phi[a] = own.accepted[a] = phi[a * count + level];
            own.step[a] = 0.0;
        }
        if (systems) {
            memcpy(own.factors, systems + level * d * d, (size_t)(d * d) * sizeof *memory);
            if (!factorise(own.factors, pivots, d))
                return false;
        }
        walkers[level] = own;
    }
    return true;
}

/* Newton's method on every level (last axis of φ), each with its own step halving, until it has settled: its step is
   within a tolerance of φ, or its last two steps tell that little is left. Sums are those of the last pass of each level,
   Hessians those of the last that had one. SINGULAR where a system has no solution: φ is then no matter. */
EXPORT int newton_levels(const double *Z, const double *y, const double *weights, int64_t n, int64_t d, double *phi,
                         const double *tau, const double *tukey, int64_t count, double floor, const double *ridge,
                         const double *slopes, const double *systems, const double *tolerance, const double *lean,
                         const double *numbers, const int64_t *choices, double *value, double *gradient,
                         double *hessian, bool *settled)
{
    search all = {choices[0], choices[1], choices[2] != 0, choices[3] != 0, choices[4] != 0, numbers[0], numbers[1], numbers[2],
                  numbers[3], numbers[4], ridge, slopes, tolerance, lean};
    levels every = {count, phi, tau, tukey, floor, all.chord};
    few_rows rows;
    walker *walkers = malloc((size_t)count * sizeof *walkers);
    int64_t *pivots = malloc((size_t)(count * d) * sizeof *pivots);
    int64_t size = (3 + d + (all.corrects ? all.passes : 0)) * d; /* of one level */
    double *memory = malloc((size_t)(count * size + d * FEW) * sizeof *memory);
    int status = walkers && pivots && memory ? DONE : NO_MEMORY;
    if (status == DONE) {
        rows.columns = memory + count * size;
        bool regular = d <= FEW && start_walkers(walkers, memory, size, pivots, phi, systems, count, d);
        for (int64_t number = 0; regular && number < all.passes && !all_settled(walkers, count); number++)
            regular = pass(&rows, &every, walkers, &all, number, Z, y, weights, n, d, phi, value, gradient, hessian);
        status = regular ? DONE : SINGULAR;
    }
    for (int64_t level = 0; status == DONE && level < count; level++)
        settled[level] = walkers[level].settled;
    if (status == DONE)
        mirror(hessian, d, count);
    free(walkers);
    free(pivots);
    free(memory);
    return status;
}

/* Residuals, and their sizes, of which `away` is reordered later. */
static double residuals_of(const double *Z, const double *y, const double *phi, int64_t n, int64_t d, double *r,
                           double *away)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double p = 0.0;
        for (int64_t j = 0; j < d; j++)
            p += Z[i * d + j] * phi[j];
        r[i] = y[i] - p;
        away[i] = fabs(r[i]);
        most = away[i] > most ? away[i] : most;
    }
    return most;
}

/* Huber's regression whose τ moves along with the residuals, the one of a given rank in size, by reweighting, which
   cannot run away: up to so many rounds, from φ, which has one level. */
EXPORT int robust_start(const double *Z, const double *y, int64_t n, int64_t d, double *phi, int64_t rank,
                        int64_t rounds, double ridge, double damping, const double *slopes)
{
    double *memory = malloc((size_t)(2 * n + d * FEW + 2 * d * d + 4 * d) * sizeof *memory);
    int64_t pivots[FEW];
    if (memory == NULL)
        return NO_MEMORY;
    double *r = memory, *away = r + n, *hessian = away + n, *gradient = hessian + d * d;
    few_rows rows;
    rows.columns = gradient + d;
    double *factors = rows.columns + d * FEW, *steps = factors + d * d;
    search all = {rounds, 0, false, false, false, (double)n, damping, 1.0, 0.0, 0.0, NULL, slopes, NULL, NULL};
    walker own = {phi, steps, steps + d, factors, NULL, pivots, 0, INFINITY, true, true, false};
    int status = d <= FEW ? DONE : SINGULAR;
    for (int64_t round = 0; status == DONE && round < rounds; round++) {
        double most = residuals_of(Z, y, phi, n, d, r, away);
        put_in_place(away, n, rank);
        double tau = larger(larger(away[rank], 1e-300), 1e-9 * most);
        memset(hessian, 0, (size_t)(d * d + d) * sizeof *hessian);
        for (int64_t start = 0; start < n; start += rows.n) {
            take(&rows, Z, r, NULL, start, n, d);
            for (int64_t i = 0; i < rows.n; i++) {
                double size = larger(fabs(rows.y[i]), 1e-300);
                rows.slope[i] = tau < size ? tau / size : 1.0;
                rows.psi[i] = rows.slope[i] * rows.y[i];
            }
            add_products(&rows, 1, 0, gradient, hessian);
        }
        own.best = INFINITY;
        if (!make_system(&own, &all, ridge, hessian, 1, d)) {
            status = SINGULAR;
            break;
        }
        advance(&own, &all, ridge, 0.0, gradient, 0.0, NULL, 1, d);
        if (norm(own.step, d) <= 1e-2 * norm(phi, d))
            break;
    }
    free(memory);
    return status;
}
