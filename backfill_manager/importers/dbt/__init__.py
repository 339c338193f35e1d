"""A dbt project as drafts of DAG files: `project.py` reads it, `models.py` renders its models and their tests, `drafts.py` writes
the tasks."""
