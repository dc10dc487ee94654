"""The constants that means and theory share."""

from __future__ import annotations

import math

# c of Lemma "valid_basic_prop": the error is at most c·sqrt((1 + log(1/δ)) σ²/n) with probability 1 − δ.
VALIDATION_CONSTANTS = {
    "catoni": 2.0,
    "median_of_means": 2 * math.sqrt(2) * math.e,
    "truncated_mean": 9 * math.sqrt(2),
}
