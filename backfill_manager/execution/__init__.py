"""A task instance becomes Spark jobs and then an outcome: pools, the executor, workers, exactly-once output.

May import `errors`, `clock`, `settings`, `logging`, `model`, `dags`. The only room that knows Spark's scheduler.
"""
