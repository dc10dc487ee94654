"""Section 4.3 of the paper: real data sets."""
