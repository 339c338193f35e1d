"""Which parser a bundle's `parser` means: one of ours, or one that an installed package offers.

[options.entry_points]
backfill_manager.bundle_parsers =
    nightly = my_package.parsers:NightlyBundleParser
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import entry_points
from typing import Final

from backfill_manager.clock import Clock
from backfill_manager.dags.loading.loader import DagLoader
from backfill_manager.dags.parsers.bundle import Bundle
from backfill_manager.dags.parsers.event import EventBundleParser
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.parsers.single_pass import SinglePassBundleParser
from backfill_manager.dags.parsers.standard import StandardBundleParser
from backfill_manager.dags.store import DagStore
from backfill_manager.errors import InvalidConfig, InvalidInput, nearest
from backfill_manager.settings import PARSER_GROUP

OURS: Final[dict[str, type[BundleParser]]] = {
    parser.name: parser for parser in (StandardBundleParser, SinglePassBundleParser, EventBundleParser)
}


def parser_for(bundle: Bundle, loader: DagLoader, store: DagStore, clock: Clock) -> BundleParser:
    """The parser that is configured; where nothing is, the one that the bundle's manifest names now."""
    with suppress(InvalidInput, InvalidConfig):  # what is wrong is told when the parser looks
        bundle.fetch()
    return parser_named(bundle.parser)(bundle, loader, store, clock)


def parser_named(name: str) -> type[BundleParser]:
    """`InvalidConfig` when there is none, when its package can't be imported, or when it is something else."""
    if name in OURS:
        return OURS[name]
    offered = {point.name: point for point in entry_points(group=PARSER_GROUP)}
    if name not in offered:
        known = [*OURS, *offered]
        raise InvalidConfig(
            f"There is no bundle parser {name!r}{nearest(name, known) or '; there are ' + ', '.join(known)}"
        )
    point = offered[name]
    try:
        found = point.load()
    except Exception as error:
        raise InvalidConfig(f"The bundle parser {name!r} ({point.value}) can't be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, BundleParser)):
        raise InvalidConfig(f"The bundle parser {name!r} ({point.value}) is no subclass of BundleParser: {found!r}")
    return found
