/* Constraint sets, by the codes of tailproof.core.sets. A new set is a code and a branch in project. */
#ifndef TAILPROOF_SETS_H
#define TAILPROOF_SETS_H

#include "common.h"

enum set_code { NONE = 0, BALL, BOX, L1_BALL, SIMPLEX };

/* Move w, in place, to the nearest point of the set; first and second are its two numbers. */
EXPORT int project(int code, double first, double second, double *w, int64_t n);

#endif
