"""The experiments of the paper: problems, methods, runs, figures, and a verdict on every claim."""
