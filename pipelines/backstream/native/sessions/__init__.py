"""Sessions, computed outside of Spark: units of islands per stretch of time, and islands per share of the keys."""
