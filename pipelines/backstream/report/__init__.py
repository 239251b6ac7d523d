"""The run report: data in, one self-contained page out. No script, no external reference."""
