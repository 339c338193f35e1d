"""Imports DAG files: `loader` in processes that may die (what does a file define?), `code_cache` in the manager's own
process (the functions of a version that was loaded before)."""
