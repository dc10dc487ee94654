"""Columns of any type to numbers and back: estimators for tables, and the models of the command line."""

from tailproof.tables.estimators import TableClassifier, TableRegressor
from tailproof.tables.model import TableModel, prepare
from tailproof.tables.reading import read_table

__all__ = ["TableClassifier", "TableModel", "TableRegressor", "prepare", "read_table"]
