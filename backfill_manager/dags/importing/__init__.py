"""The only rooms that execute DAG files: `loader` in processes that may die (what does a file define?), `library` in the
manager (the functions of a version that a run was made with)."""
