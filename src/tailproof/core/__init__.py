"""The paper: one module for each of its parts, on NumPy, SciPy and the compiled kernels alone."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
