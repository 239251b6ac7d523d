"""What a run is, and the files that it leaves: plan, manifests, results, progress, state."""
