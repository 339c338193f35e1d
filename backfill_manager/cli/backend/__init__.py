"""Where a command reads and submits: the state tables (local) or a server (remote)."""
