"""What a person may ask, and the one way to ask it: a validated payload, appended to `request`. For CLI and API alike.

May import `errors`, `clock`, `settings`, `model`, `store`, `dags`. Nothing here touches Spark: asking takes no time.
"""
