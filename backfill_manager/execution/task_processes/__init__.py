"""The processes in which tasks run: both ends of them, their Spark, their log, their spans."""
