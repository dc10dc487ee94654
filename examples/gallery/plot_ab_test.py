"""
Revenue per customer: an A/B test
=================================

Did the new page sell more? Nine visitors in ten buy nothing, and one customer may spend a hundred times the
mean. Which group the largest customers happen to visit decides an ordinary t-test;
:func:`tailproof.compare_means` lets both groups share their tails.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import tailproof as tp

rng = np.random.default_rng(0)


def revenue(n, buyers):
    return (rng.random(n) < buyers) * rng.lognormal(2.5, 1.75, n)


new, old = revenue(10_000, buyers=0.11), revenue(10_000, buyers=0.10)
print(tp.compare_means(new, old))

# %%
# 40 tests of the same page
# -------------------------
# One visitor in a hundred more buys something: 10% more revenue. How long are the intervals, and how many
# cover that?

truth = 0.01 * np.exp(2.5 + 1.75**2 / 2)
shared, welch = [], []
for _ in range(40):
    a, b = revenue(10_000, 0.11), revenue(10_000, 0.10)
    found = tp.compare_means(a, b)
    shared.append((found.low, found.high))
    welch.append(stats.ttest_ind(a, b, equal_var=False).confidence_interval())

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharex=True, sharey=True)
for ax, (name, ends) in zip(axes, {"Welch's t-test": welch, "shared tails": shared}.items(), strict=True):
    low, high = np.array(ends).T
    covers = (low <= truth) & (truth <= high)
    ax.hlines(np.arange(40), low, high, colors=np.where(covers, "#34607f", "#c0392b"), linewidth=1)
    ax.axvline(truth, color="black", linewidth=0.8)
    ax.set(
        title=f"{name}: length {np.mean(high - low):.1f}, {covers.mean():.0%} cover",
        xlabel="difference of means",
    )
axes[0].set_ylabel("test")
plt.show()

print(f"mean length: Welch {np.mean(np.diff(welch)):.2f}, shared tails {np.mean(np.diff(shared)):.2f}")

# %%
# On the command line: ``tailproof ab visits.csv --metric revenue --group variant --report ab.html``.
