"""Items of a backfill that one run processes together, and how many."""
