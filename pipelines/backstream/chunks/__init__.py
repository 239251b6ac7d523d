"""Run the chunks of a plan in native tasks, stage their files, and write their manifests. No Spark here."""
