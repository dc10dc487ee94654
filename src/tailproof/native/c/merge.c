/* Distances by differences; a squared norm minus twice a product would cancel. */
#include "common.h"

/* One distance, where squares may leave the range of floats: relative to the largest difference. */
static double careful_distance(const double *point, const double *centre, int64_t d)
{
    double largest = 0.0, total = 0.0;
    for (int64_t i = 0; i < d; i++)
        largest = at_least(largest, fabs(0.5 * point[i] - 0.5 * centre[i]));
    for (int64_t i = 0; i < (largest > 0.0 ? d : 0); i++) {
        double part = (0.5 * point[i] - 0.5 * centre[i]) / largest;
        total += part * part;
    }
    return 2.0 * largest * sqrt(total);
}

/* ‖u − centre‖ for k points. */
EXPORT int distances(const double *points, int64_t k, int64_t d, const double *centre, double *found)
{
    for (int64_t j = 0; j < k; j++, points += d) {
        double total = 0.0;
        SUM(total)
        for (int64_t i = 0; i < d; i++)
            total += (points[i] - centre[i]) * (points[i] - centre[i]);
        bool in_range = 1e-280 < total && total < 1e300;
        found[j] = in_range ? sqrt(total) : careful_distance(points, centre, d);
    }
    return DONE;
}
