"""Reads tables of the data, not of the state, without Spark: logs, statistics of files, and files."""
