"""What spark-submit runs: arguments in, a manifest out."""
