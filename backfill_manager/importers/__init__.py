"""From the files of other tools to drafts of DAG files: `airflow/`, `dbt/`, `dagster.py` over one model (`draft.py`) and one
writer (`writer.py`). Nothing of what is imported is executed, and the other tool need not be installed.

May import what is below it, and is imported by `cli/commands/import_.py` alone.
"""
