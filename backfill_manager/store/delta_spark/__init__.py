"""The store over Spark with delta-spark, for catalog schemas and for file systems that need Spark's connectors."""
