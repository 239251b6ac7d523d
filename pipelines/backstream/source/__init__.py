"""Input files of a source, read without Spark."""
