"""Preview a run: compute a sample of keys exactly, compare it with the published rows, and estimate the rest."""
