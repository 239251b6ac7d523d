"""The watermarks of whole streams and the firing times of windows, for both engines, with NumPy and Arrow."""
