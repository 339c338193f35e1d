"""Spark for a manager: its session and jars, the properties and the status of jobs, and whether it is still there."""
