"""Ten clients train one network in rounds; four of them have wrong labels.

In each round every client starts at the common network and trains on its own rows; the mean of the closest
majority becomes the next common network. The mean of all ten follows the bad clients, that of the majority
does not.
"""

from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import tailproof as tp

CLIENTS, BAD = 10, 4


def make_net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def main(rounds=15):
    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.images[rows] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[rows])
    train, test = slice(0, 1_300), slice(1_300, None)
    client = np.arange(1_300) % CLIENTS
    reported = torch.where(torch.as_tensor(client < BAD), (labels[train] + 1) % 10, labels[train])

    def accuracy(merge):
        candidates = tp.torch.Candidates(make_net, CLIENTS, random_state=0).fit(
            (images[train], reported),
            cross_entropy,
            optimizer=partial(torch.optim.Adam, lr=3e-3),
            epochs=2,
            batch_size=16,
            rounds=rounds,
            merge=merge,
            groups=client,
        )
        print(f"{merge}: {candidates.rounds[-1]}")
        with torch.no_grad():
            return (
                (candidates.merge(merge)(images[test]).argmax(dim=1) == labels[test]).double().mean().item()
            )

    robust, plain = accuracy("ball_mean"), accuracy("centroid")
    print(
        f"test accuracy with {BAD} of {CLIENTS} clients bad: "
        f"mean of the closest majority {robust:.3f}, mean of all {plain:.3f}"
    )
    return robust, plain


if __name__ == "__main__":
    main()
