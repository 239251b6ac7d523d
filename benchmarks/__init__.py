"""Benchmarks of backstream against hand-written code and against other engines. Reports list the ratios first."""
