"""Run the rules of `eventtime` in Spark, as functions that take and return a DataFrame."""

from backstream.spark.installation import use_matching_python_files

use_matching_python_files()  # before any module imports PySpark
