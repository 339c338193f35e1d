"""The long-lived process: small loops round one working set, and `main`, where all is wired.

    inbox ─► planner ─► run_keeper ─► dispatcher ─► (commit) ─► executor ─► outcomes ─► ...        tick.py is the way through

May import everything but `requests`' callers, `cli`, `api` and `ui`. Decisions (`run_keeper`, `dispatcher`, `outcomes`) are
functions over the working set: no Spark, no Delta, no clock, no thread. What they decide is committed before it is done.
"""
