"""A command becomes a plan (`backfills/make_plan.py`): intervals (Spark SQL), the backfill plan with all downstream of it and its
estimates, clears, batches, the timeline. What is decided here is printed by a dry run and performed by the manager from one
value.

May import `errors`, `clock`, `logging`, `settings`, `model`, `schemas`, `store`, `dags`.
"""
