"""A command to create a backfill becomes its plan (`make_plan.py` is the way in), with what it will cost."""
