"""What can run: the definition of a DAG and its tasks, timetables, loading DAG files, DAG versions.

May import `errors`, `clock`, `settings`, `telemetry`, `model`, `store`. User code is run only by `loader` (in a process of
its own, to find out what a file defines) and by `library` (in the manager, to run the version that a run was made with).
"""
