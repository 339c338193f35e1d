"""Runs of a DAG: their timeline, which is next or late, and which are cleared or marked."""
