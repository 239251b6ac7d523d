"""Reconstruct arrival order, watermarks, and window firing times of a recorded stream."""
