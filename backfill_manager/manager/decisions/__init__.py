"""What a tick decides by itself: which runs and tasks begin, and how they end. Pure functions over `ManagerState`."""
