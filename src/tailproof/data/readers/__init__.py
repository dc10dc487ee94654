"""Batches of rows from files, chunks and frames."""
