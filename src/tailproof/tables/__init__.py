"""Columns of any type to numbers and back: the models of the command line."""

from tailproof.tables.model import TableModel, prepare
from tailproof.tables.reading import read_table

__all__ = ["TableModel", "prepare", "read_table"]
