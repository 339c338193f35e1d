"""What works beside the tick, in threads of its own, and reports to its event queue: nothing here decides."""
