"""The small records that travel between the parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Block:
    """One of the k disjoint parts of the data.

    Attributes
    ----------
    index : int
        Which of the k blocks, from 0.
    rows : array of int
        The rows it holds, in the order in which they are to be visited.
    seed : SeedSequence
        The block's own source of randomness, a child of the seed of the partition.
    """

    index: int
    rows: NDArray[np.intp]
    seed: np.random.SeedSequence

    def __len__(self) -> int:
        return self.rows.size
