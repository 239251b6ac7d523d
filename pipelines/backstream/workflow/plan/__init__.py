"""Plan a run: its range, input files, chunks, and tables, and what it would change."""
