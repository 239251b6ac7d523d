"""Find the days that late data made stale, and the ranges to run again."""
