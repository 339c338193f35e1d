"""The long-lived process: services around one `ManagerState`. `manager.py` wires them, `tick.py` is the loop.

    services ─► event_queue ─► tick: operations, decisions ─► (commit) ─► executor ─► event_queue ─► ...

May import everything but `api`, `web` and `cli`. `decisions` and `operations` are functions over `ManagerState`: no Spark, no
Delta, no clock, no thread. What they decide is committed before it is done. Which of its packages may import which is written
down in `tests/test_layering.py`.
"""
