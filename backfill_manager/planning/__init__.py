"""A request becomes a value: intervals (Spark SQL), the backfill plan with all downstream of it and its estimates,
batches, readiness, the timeline.

May import `errors`, `clock`, `settings`, `logging`, `model`, `store`, `dags`, `requests`. What is decided here is
printed by a dry run and performed by the manager from the same value.
"""
