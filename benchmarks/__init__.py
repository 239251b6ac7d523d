"""Measurements: backstream against what one would write by hand, and against other engines; ratios first."""
