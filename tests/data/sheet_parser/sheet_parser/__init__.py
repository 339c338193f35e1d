"""Sheets of tasks, as a spreadsheet exports them: a bundle parser that knows backfill_manager from its documentation only."""
