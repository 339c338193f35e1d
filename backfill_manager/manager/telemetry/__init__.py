"""What is reported of a commit: log lines, OpenLineage events, spans."""
