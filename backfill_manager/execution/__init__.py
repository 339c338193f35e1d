"""Runs task instances: the executor with its pools, and what a try does, from its Spark session to its exactly-once output.

    executor ─► task_processes ─► tasks ─► output ─► spark
                    a process      its code    its writes

May import what lies below (`planning` and down). The only package that knows Spark's scheduler. Its own packages import only
those below them: `task_processes`, `tasks`, `promote_revert` and `inputs`, `output`, `lineage`, `spark`.
"""
