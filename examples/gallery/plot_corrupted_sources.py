"""
Corrupted sources
=================

Twenty hospitals send the coefficients that they fitted to their own patients; rows stay where they are.
Three of them mixed up a unit. The mean of the twenty is ruined, the geometric median is not: that is line 3
of Algorithm 1.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

import tailproof as tp

rng = np.random.default_rng(0)
truth = np.array([1.0, -2.0])


def fitted_by(hospital):
    X = rng.standard_normal((300, 2))
    y = X @ truth + rng.standard_t(2.5, 300)
    unit = 25.0 if hospital < 3 else 1.0
    return LinearRegression().fit(X, unit * y).coef_


points = np.array([fitted_by(hospital) for hospital in range(20)])
merged = {
    "mean": points.mean(axis=0),
    "coordinate median": tp.merge.coordinate_median(points).point,
    "geometric median": tp.merge.geometric_median(points).point,
    "smallest ball": tp.merge.smallest_ball(points).point,
}
for name, point in merged.items():
    print(f"{name:>18}: {point.round(2)}, {np.linalg.norm(point - truth):.2f} from the truth {truth}")

# %%
# Who stands out?
# ---------------
# Candidates more than three majority radii from the merged point.

found = tp.merge.geometric_median(points)
radius = tp.merge.majority_radius(points, found.point)
far = np.flatnonzero(np.linalg.norm(points - found.point, axis=1) > 3 * radius)
print("hospitals that stand out:", far)

figure, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
ax.plot(*points.T, "o", color="grey", label="hospitals")
ax.plot(*points[far].T, "o", color="#b26a00", label="stand out")
for (name, point), mark in zip(merged.items(), "xv*s", strict=True):
    ax.plot(*point, mark, markersize=11, label=name)
ax.set(xscale="symlog", yscale="symlog", xlabel="first coefficient", ylabel="second coefficient")
ax.legend()
plt.show()
