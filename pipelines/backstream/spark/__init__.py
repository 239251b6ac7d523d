"""Run the rules of `eventtime` in Spark, as functions that take and return a DataFrame."""
