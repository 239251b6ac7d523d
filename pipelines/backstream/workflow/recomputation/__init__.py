"""Recompute published windows from raw input with the reference engine, as a second opinion; no Spark starts."""
