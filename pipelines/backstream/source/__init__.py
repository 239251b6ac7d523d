"""Read the input files of a source without Spark."""
