"""Fits from robust to least squares, and the choice among them by paired validation."""
