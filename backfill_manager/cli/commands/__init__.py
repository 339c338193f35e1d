"""The commands of `bfm`, a file for each noun; `backfill_watch`, `run_watch` and `revert` are what several of them do."""
