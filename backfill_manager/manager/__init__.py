"""The long-lived process: services around one `ManagerState`. `manager.py` wires them, `tick.py` is the loop.

    request_handler ─► planner ─► backfill_runs, schedule ─► runs ─► task_slots ─► (commit) ─► executor ─► apply_outcomes ─► ...

May import everything but `api`, `web` and `cli`. Decisions (`runs`, `backfill_runs`, `task_slots`, `apply_outcomes`, ...) are
functions over `ManagerState`: no Spark, no Delta, no clock, no thread. What they decide is committed before it is done.
"""
