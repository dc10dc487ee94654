"""The command line: demo, diagnose, fit, predict, compare, ab, info, paper."""
