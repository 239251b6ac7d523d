"""Join two streams as Flink 2.3.0 does, record by record: the rule of each kind of join in plain Python."""
