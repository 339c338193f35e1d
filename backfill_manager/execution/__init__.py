"""Runs task instances: the executor and its pools, Spark sessions and jobs, the task context, exactly-once output.

May import what lies below (`planning` and down). The only package that knows Spark's scheduler.
"""
