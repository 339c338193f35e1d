"""Which tables and columns a try reads and writes."""
