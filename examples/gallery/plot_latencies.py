"""
Latencies
=========

The mean latency of a service, with an interval: most requests are quick, one in a hundred waits for a
retry. The plain mean moves with the few slow ones; Catoni's mean estimates the same number with lighter
tails.
"""

import matplotlib.pyplot as plt
import numpy as np

import tailproof as tp

rng = np.random.default_rng(0)


def latencies(shape):
    quick = rng.lognormal(3.0, 0.4, shape)
    return quick + (rng.random(shape) < 0.01) * 200 * (1 + rng.pareto(2.2, shape))


one_hour = latencies(2_000)
plain = one_hour.mean()
robust = tp.means.interval(one_hour, "catoni", delta=0.05, method="student")
print(f"plain mean {plain:.1f} ms, Catoni's {robust.estimate:.1f} ms")
print(f"95% interval {robust.low:.1f} to {robust.high:.1f} ms")
tail = tp.diagnose.tails(one_hour)
print(f"tails: {tail.verdict}; tail index {tail.moment.alpha:.1f}")

# %%
# 400 hours
# ---------
# The same service every hour: how far is each estimate from the true mean?

hours = latencies((400, 2_000))
truth = np.exp(3.0 + 0.08) + 0.01 * 200 * (1 + 1 / 1.2)
estimates = {
    "mean": hours.mean(axis=1),
    "median of means": tp.means.median_of_means(hours, axis=1),
    "Catoni": tp.means.catoni(hours, axis=1),
}
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.boxplot(
    list(estimates.values()), orientation="horizontal", tick_labels=list(estimates), whis=(1, 99), sym="."
)
ax.axvline(truth, color="grey", linestyle="--")
ax.set(xlabel="estimated mean latency in ms (dashed: truth)", xlim=(truth - 5, truth + 15))
plt.show()

for name, values in estimates.items():
    print(f"{name:>16}: 99% of hours within {np.quantile(np.abs(values - truth), 0.99):.2f} ms of the truth")
