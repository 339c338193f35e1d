"""Airflow's DAG files, by `ast` alone: nothing of a file is executed. Each module imports only those below it:

translate    a file, statement by statement; what is left to do at its end is in `finish`
body         the statements of a DAG; `definitions` (functions and classes), `dags`, `chains`
calls        which tasks a call makes: `tasks` (operators), `taskflow`, `mapping`, `groups`
operators    the table of operators; `callables`, the functions that they call
expressions  values in a DAG's body, and in a task; `order`, what comes before what
walk         the state of the walk, with `facts`, `symbols`, and what knows no walk: `settings`, `functions`, `templates`
"""
