"""Prepare raw files with PyArrow: a strict reader of JSON lines, which leaves every unusual file to Spark."""
