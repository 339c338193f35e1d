"""What tasks write: each write of a try once, by one commit, in turn with other writers of its table; a preview's into clones."""
