"""Check a definition, a sample of its source, and an installation before any run."""
