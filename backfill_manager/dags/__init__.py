"""What can run: definitions of DAGs and their tasks, timetables, and how they come from bundles into the state.

    bundles/ (files) ─► loading/ (a file's definitions, in a process that may die) ─► parsers/ (when, which) ─► store (versions)

May import `errors`, `clock`, `settings`, `logging`, `model`, `store`.
"""
