"""Airflow's DAG files: `translate.py` walks through a file, `operators.py` makes tasks of operators, `functions.py` changes the
functions that tasks call, `settings.py` their settings, `templates.py` Jinja. By `ast` alone: nothing of a file is executed."""
