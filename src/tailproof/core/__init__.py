"""The paper: one module for each of its parts, on NumPy and SciPy alone."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
