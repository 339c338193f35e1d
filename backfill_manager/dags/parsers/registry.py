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
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.builtin import EventBundleParser, SinglePassBundleParser, StandardBundleParser
from backfill_manager.dags.parsers.bundle_state import BundleState, ParserChanged, ParserOptions, RawOptions
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import PARSER_GROUP, RawSettings, Settings, unknown_parser

OURS: Final[dict[str, type[BundleParser]]] = {
    parser.name: parser for parser in (StandardBundleParser, SinglePassBundleParser, EventBundleParser)
}


def parser_for(bundle: BundleState, loader: DagLoader, catalog: DagCatalog, clock: Clock) -> BundleParser:
    """The parser that is configured; where nothing is, the one that the bundle's manifest names now. `InvalidInput` when the
    bundle can't be fetched, `InvalidConfig` when its manifest, its parser or the parser's options are wrong."""
    with suppress(ParserChanged):  # bundle.parser is the one it names
        bundle.fetch()
    return parser_named(bundle.parser)(bundle, loader, catalog, clock)


def parser_named(name: str) -> type[BundleParser]:
    """`InvalidConfig` when there is none, when its package can't be imported, or when it is something else."""
    if name in OURS:
        return OURS[name]
    point = next((point for point in entry_points(group=PARSER_GROUP) if point.name == name), None)
    if point is None:
        raise InvalidConfig(f"There is no bundle parser {name!r}: it {unknown_parser(name)}")
    who = f"bundle parser {name!r} ({point.value})"
    try:
        cls = point.load()
    except (Exception, SystemExit) as error:  # another package may raise anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise InvalidConfig(f"The {who} can't be imported: {why}") from error
    if not (isinstance(cls, type) and issubclass(cls, BundleParser)):
        raise InvalidConfig(f"The {who} is no subclass of BundleParser: {cls!r}")
    if lacking := ", ".join(sorted(cls.__abstractmethods__)):
        raise InvalidConfig(f"The {who} lacks {lacking}; see docs/bundles.md")
    if not (isinstance(cls.Options, type) and issubclass(cls.Options, ParserOptions)):
        raise InvalidConfig(f"Options of the {who} is no subclass of ParserOptions")
    if isinstance(cls.files, str) or not all(isinstance(pattern, str) and pattern for pattern in cls.files):
        raise InvalidConfig(f'`files` of the {who} must be patterns such as ("*.csv",)')
    return cls


def check_parsers(settings: Settings, raw: RawSettings) -> None:
    """`InvalidConfig` has a line, with its place, for each bundle whose parser is not here, and for each option that is wrong
    as far as the configuration alone can tell: a manifest may name the parser, and may have more options."""
    wrong: list[str] = []
    for n, bundle in enumerate(settings.bundles):
        if "parser" not in bundle.model_fields_set:
            continue
        try:
            model = parser_named(bundle.parser).Options
        except InvalidConfig as error:
            wrong.append(f"{raw.place(('bundles', n, 'parser'))}: bundles[{n}].parser: {error}")
            continue
        places = {where[2:]: place for where, place in raw.places.items() if where[:2] == ("bundles", n)}
        try:
            RawOptions(bundle.options, {}, places, bundle.name).checked(model, bundle.parser)
        except InvalidConfig as error:
            lines = [line for line in str(error).splitlines() if not line.endswith(" is missing")]
            wrong += [line.replace(": options", f": bundles[{n}].options", 1) for line in lines]
    if wrong:
        raise InvalidConfig("\n".join(wrong))
