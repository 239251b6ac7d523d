"""Define a run and the files that it writes: plan, manifests, results, progress, state."""
