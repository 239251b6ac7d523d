"""Prepare raw files with Spark: read any format, compute times and columns, and write Parquet files.

All conditions on single records are decided here, in Spark SQL. So both engines read the same values.
"""
