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
from backfill_manager.dags.catalog import DagStore
from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.bundle_state import AnotherParser, BundleState
from backfill_manager.dags.parsers.event import EventBundleParser
from backfill_manager.dags.parsers.options import ParserOptions, SaidOptions
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.parsers.single_pass import SinglePassBundleParser
from backfill_manager.dags.parsers.standard import StandardBundleParser
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import PARSER_GROUP, Loc, RawSettings, Settings, unknown_parser

OURS: Final[dict[str, type[BundleParser]]] = {
    parser.name: parser for parser in (StandardBundleParser, SinglePassBundleParser, EventBundleParser)
}


def parser_for(bundle: BundleState, loader: DagLoader, store: DagStore, clock: Clock) -> BundleParser:
    """The parser that is configured; where nothing is, the one that the bundle's manifest names now. `InvalidInput` when the
    bundle can't be had, `InvalidConfig` when its manifest, its parser or the parser's options are wrong."""
    with suppress(AnotherParser):  # which one is known now
        bundle.fetch()
    return parser_named(bundle.parser)(bundle, loader, store, clock)


def parser_named(name: str) -> type[BundleParser]:
    """`InvalidConfig` when there is none, when its package can't be imported, or when it is something else."""
    if name in OURS:
        return OURS[name]
    point = next((point for point in entry_points(group=PARSER_GROUP) if point.name == name), None)
    if point is None:
        raise InvalidConfig(f"There is no bundle parser {name!r}: it {unknown_parser(name)}")
    try:
        found = point.load()
    except (Exception, SystemExit) as error:  # a package of somebody else's may raise anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidConfig(f"The bundle parser {name!r} ({point.value}) can't be imported: {why}") from error
    if not (isinstance(found, type) and issubclass(found, BundleParser)):
        raise InvalidConfig(f"The bundle parser {name!r} ({point.value}) is no subclass of BundleParser: {found!r}")
    lacking = ", ".join(sorted(found.__abstractmethods__))
    if lacking:
        raise InvalidConfig(f"The bundle parser {name!r} ({point.value}) lacks {lacking}; see docs/bundles.md")
    if not (isinstance(found.Options, type) and issubclass(found.Options, ParserOptions)):
        raise InvalidConfig(f"Options of the bundle parser {name!r} ({point.value}) is no subclass of ParserOptions")
    if isinstance(found.files, str) or not all(isinstance(pattern, str) and pattern for pattern in found.files):
        raise InvalidConfig(
            f'`files` of the bundle parser {name!r} ({point.value}) must be patterns such as ("*.csv",)'
        )
    return found


def check_parsers(settings: Settings, raw: RawSettings) -> None:
    """`InvalidConfig` has a line, with its place, for each bundle whose parser is not here, and for each option that is wrong
    as far as the configuration alone can tell: a manifest may name the parser, and may have more options."""
    wrong: list[str] = []
    for n, bundle in enumerate(settings.bundles):
        if "parser" not in bundle.model_fields_set:
            continue
        at: Loc = ("bundles", n)
        try:
            model = parser_named(bundle.parser).Options
        except InvalidConfig as error:
            wrong.append(f"{raw.place((*at, 'parser'))}: bundles[{n}].parser: {error}")
            continue
        places = {where[2:]: place for where, place in raw.places.items() if where[:2] == at}
        try:
            SaidOptions(bundle.options, {}, places, bundle.name).checked(model, bundle.parser)
        except InvalidConfig as error:
            told = [line for line in str(error).splitlines() if not line.endswith(" is missing")]
            wrong += [line.replace(": options", f": bundles[{n}].options", 1) for line in told]
    if wrong:
        raise InvalidConfig("\n".join(wrong))
