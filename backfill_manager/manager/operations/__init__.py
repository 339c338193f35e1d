"""What a tick does for people: a request is answered exactly once, by a change of the state."""
