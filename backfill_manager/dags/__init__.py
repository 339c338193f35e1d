"""What can run: definitions of DAGs and their tasks, timetables, and how they come from bundles into the state.

    bundles/ (files) ─► importing/ (definitions, in a process that may die) ─► parsers/ (when, which) ─► catalog (versions)

May import the modules below it and `settings`, `model`, `schemas`, `store`.
"""
