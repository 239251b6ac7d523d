"""Examples to read, use and copy."""
