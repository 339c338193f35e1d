"""Dagster's files as drafts of DAG files, by `ast` alone: `drafts` reads a file, `tasks` writes its functions, `partitions` their
schedule; all of them know `nodes`."""
