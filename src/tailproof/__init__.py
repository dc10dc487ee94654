"""tailproof: learning when losses and gradients may be heavy-tailed."""

from tailproof import means, merge, partition, theory

__version__ = "0.1.0"

__all__ = ["__version__", "means", "merge", "partition", "theory"]
