"""The command line: demo, diagnose, fit, predict, compare, info, paper."""
