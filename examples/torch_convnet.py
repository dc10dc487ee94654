"""A small convolutional net of one's own, by robust validation.

Ten copies train at once, each on its own block of the images; the one with the least robust risk on
held-out images wins. Merging their parameters instead is shown for contrast: nets from different starts
number their units differently, and the merged net falls far behind; see torch_federated.py for one start.
"""

import warnings
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import tailproof as tp


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(8 * 4 * 4, 10))

    def forward(self, images):
        return self.head(self.features(images))


def main(k=10, epochs=20):
    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.images[rows, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[rows])
    train, held_out, test = slice(0, 1200), slice(1200, 1500), slice(1500, None)

    candidates = tp.torch.Candidates(ConvNet, k, random_state=0).fit(
        (images[train], labels[train]),
        cross_entropy,
        optimizer=partial(torch.optim.Adam, lr=0.01),
        epochs=epochs,
        batch_size=16,
    )
    chosen = candidates.select((images[held_out], labels[held_out]), mean="catoni", delta=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that these nets have different starts
        merged = candidates.merge("geometric_median")

    def accuracy(module):
        with torch.no_grad():
            return (module(images[test]).argmax(dim=1) == labels[test]).double().mean().item()

    print(
        f"block {chosen.index} wins: risk {chosen.risk:.3f}, interval [{chosen.low:.3f}, {chosen.high:.3f}]"
    )
    print(f"test accuracy: selected {accuracy(chosen.module):.3f}, merged {accuracy(merged):.3f}")
    return accuracy(chosen.module), accuracy(merged)


if __name__ == "__main__":
    main()
