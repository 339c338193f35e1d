"""The schema: every command, every resource that is shown and every error of a command, declared once.

From it come the payloads in the request table, the REST models and OpenAPI, the Typer options, the forms, and the client's
arguments and models. Pydantic only; may import `errors`, `clock` and `model`.
"""
