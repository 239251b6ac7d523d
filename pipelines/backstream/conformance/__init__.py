"""Compare both engines with recordings of Apache Flink."""
