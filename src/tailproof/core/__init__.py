"""The paper: one module for each of its parts, on NumPy and SciPy alone."""
