"""The REST API: like the command line it reads through `queries` and submits commands through `requests`.

`app.create_app` is the composition root; `context` is what handlers work with, `conditional_get` reads and `submit` changes,
`auth` who the user is, `errors` the problem documents, `middleware` and `connections` the limits, `server` the process.
`routes` has a file for each resource. May import all but `cli` and `web`; knows FastAPI, and no pyspark.
"""
