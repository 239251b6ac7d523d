"""Compute session windows, which depend on the other events of their key."""
