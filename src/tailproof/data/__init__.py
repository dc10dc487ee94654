"""Rows that are not in memory: fit, predict and score on files, iterators, Dask and Spark."""
