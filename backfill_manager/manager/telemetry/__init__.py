"""What others are told of a commit: the log, OpenLineage events, spans."""
