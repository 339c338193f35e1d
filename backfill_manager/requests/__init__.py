"""What a person may ask, and the one way to ask it: a validated payload, appended to `request`. Used by CLI and API alike.

May import `errors`, `clock`, `settings`, `model`, `store`, `dags`. Nothing here touches Spark: asking takes milliseconds.
"""
