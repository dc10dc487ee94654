"""Compiled loops and searches that the parts of the paper share."""
