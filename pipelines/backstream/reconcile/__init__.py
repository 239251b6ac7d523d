"""Comparing what is published, or staged, with what a live system said, and saying why windows differ."""
