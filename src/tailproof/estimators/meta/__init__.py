"""Divide and conquer, and robust validation, over any scikit-learn estimator."""
