"""Prepare the input of runs: raw files, side inputs, and positions that occur repeatedly."""
