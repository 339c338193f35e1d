"""The store over delta-rs: no JVM."""
