"""Columns of any type to numbers and back: the models of the command line."""
