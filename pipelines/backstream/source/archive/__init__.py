"""Look at an archive of recorded events without Spark, and derive a definition from what lies there."""
