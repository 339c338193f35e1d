"""Reads only: documents (plain dicts) out of a store, with the fields of `schemas.resources`, instants as text.

One function per list, with its paging. May import `errors`, `clock`, `settings`, `model`, `schemas`, `store`, `dags`,
`planning`, `execution`. The interfaces (cli, api, web) only choose and render; how an object's parts add up is decided here.
"""
