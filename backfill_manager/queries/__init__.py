"""Reads only: documents (plain dicts) out of a store, with the fields of `schemas.resources`, instants as text.

One function per list, with its paging. May import `errors`, `clock`, `settings`, `model`, `schemas`, `store`, `dags`,
`planning`, `execution`. The interfaces (cli, api, web) only choose and render; how an object's parts add up is decided here.

A module is imported when it is first used, as `queries.runs` too: a light command needs one or two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backfill_manager.queries import backfill_items as backfill_items
    from backfill_manager.queries import backfills as backfills
    from backfill_manager.queries import bundles as bundles
    from backfill_manager.queries import dags as dags
    from backfill_manager.queries import eta as eta
    from backfill_manager.queries import managers as managers
    from backfill_manager.queries import named_run as named_run
    from backfill_manager.queries import notifications as notifications
    from backfill_manager.queries import pools as pools
    from backfill_manager.queries import requests as requests
    from backfill_manager.queries import runs as runs
    from backfill_manager.queries import tables as tables
    from backfill_manager.queries import tasks as tasks
    from backfill_manager.queries import versions as versions
else:

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(name)
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
