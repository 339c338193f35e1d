"""The write side: validates a command and appends it to `request`, for the CLI, the API, the pages and the manager alike.

May import everything up to `queries`. Nothing here touches Spark: a request takes no time.
"""
