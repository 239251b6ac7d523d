"""The entry point of spark-submit: it reads a plan, and writes a manifest for each chunk."""
