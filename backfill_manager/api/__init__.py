"""The REST interface: the same functions behind it as behind the command line, `views/` to read and `requests/` to ask.

`app.create_app` wires it; `house` is what handlers are given, `access` says who asks, `asks` is the one way to ask the
manager, `problems` how errors are told, `limits` what is let in. A file per noun holds its routes. May import all but
`cli` and `ui`; knows FastAPI, and no pyspark.
"""
