"""The lake: Iceberg tables over staged Parquet files, committed by PyIceberg. No Spark here."""
