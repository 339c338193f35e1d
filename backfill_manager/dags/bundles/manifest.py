"""`manifest.yaml` in a bundle's root: what the bundle says itself of how it is to be read.

    version: v1beta
    parser: standard
    fetch_interval: 5 minutes
    directories:
      - {path: glacier, scan_interval: 1 day, min_file_parse_interval: 1 day}

What the manager's own configuration says wins: who runs the manager has the last word; of `options`, option by option.
AIP-85's spelling of the same is understood too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from backfill_manager.dags.bundles.files import LARGEST_DATA_FILE, read
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import (
    DEFAULT_CONF,
    PARSERS,
    BundleRules,
    BundleSettings,
    Loc,
    Said,
    read_yaml,
    unknown_parser,
    validated,
)

MANIFEST: Final = "manifest.yaml"
VERSION: Final = "v1beta"
_ORIGIN: Final = set(BundleSettings.model_fields) - set(BundleRules.model_fields)
_AIP_85_PARSERS: Final = {
    "StandardBundleParser": "standard",
    "SinglePassBundleParser": "single_pass",
    "EventBasedBundleParser": "event",
}


class Manifest(BundleRules):
    version: Literal["v1beta"]


@dataclass(frozen=True)
class ManifestRead:
    """A manifest, and the lines of what it says."""

    rules: Manifest
    keys: frozenset[str]  # that it says
    said: Said


def read_manifest(settings: BundleSettings, root: Path) -> ManifestRead | None:
    """The manifest in `root`, if there is one, of a bundle with these settings. `InvalidConfig` has a line, with its place,
    for each thing that is wrong there."""
    content = read(root / MANIFEST)
    if content is None and (root / MANIFEST).is_file():
        raise InvalidConfig(f"{MANIFEST}: is larger than {LARGEST_DATA_FILE >> 20} MB")
    if content is None:
        return None
    said = Said()
    said.places[()] = f"{MANIFEST}, line 1"
    try:
        read_yaml(content.decode("utf-8"), MANIFEST, said, such_as=f"version: {VERSION}")
    except UnicodeDecodeError:
        raise InvalidConfig(f"{MANIFEST} is not UTF-8 text.") from None
    _refuse_what_is_not_its_own(said)
    _understand_aip_85(said)
    keys = frozenset(map(str, said.values)) - {"version"}
    _judge_by_the_parser_in_effect(said, settings)
    return ManifestRead(validated(Manifest, said), keys & set(said.values), said)


def with_manifest(settings: BundleSettings, manifest: ManifestRead | None) -> BundleSettings:
    """A bundle's settings as they are configured, and what they leave unsaid as its manifest says it; both have a say in
    `options`."""
    if manifest is None:
        return settings
    update = {key: getattr(manifest.rules, key) for key in manifest.keys - settings.model_fields_set}
    return settings.model_copy(update={**update, "options": {**manifest.rules.options, **settings.options}})


def _judge_by_the_parser_in_effect(said: Said, settings: BundleSettings) -> None:
    """The one that the configuration names, if it names one: options for another parser are then nobody's."""
    name = said.values.get("parser", settings.parser)
    if not isinstance(name, str):
        return  # told when it is validated
    if "parser" not in settings.model_fields_set:
        unknown = unknown_parser(name)
        if unknown and not unknown_parser(name, misspelt=True):  # else it is told when it is validated
            said.wrong.append(f"{said.place(('parser',))}: parser {unknown}")
    elif name != settings.parser:
        said.values.pop("options", None)
    said.values["parser"] = settings.parser if "parser" in settings.model_fields_set else name


def _refuse_what_is_not_its_own(said: Said) -> None:
    if "version" not in said.values:
        said.wrong.append(f"{said.place(())}: version is missing; `version: {VERSION}` is known here")
        said.values["version"] = VERSION
    for key in [key for key in said.values if key in _ORIGIN]:
        said.wrong.append(f"{said.place((key,))}: {key} is said in {DEFAULT_CONF}, not by the bundle itself")
        del said.values[key]


def _understand_aip_85(said: Said) -> None:
    """Bring AIP-85's keys to ours: `bundle_parser`, `bundle_fetch_interval`, and `bundle_config`, a mapping or a list of one
    mapping, with `directories_to_scan`; its other keys are options of a parser that is not ours."""
    parser = said.values.get("bundle_parser")
    if isinstance(parser, str):
        said.values["bundle_parser"] = _AIP_85_PARSERS.get(parser, parser)
    if "bundle_config" in said.values:
        _understand_bundle_config(said)
    for theirs, ours in (
        ("bundle_parser", "parser"),
        ("bundle_fetch_interval", "fetch_interval"),
        ("directories_to_scan", "directories"),
    ):
        if theirs not in said.values:
            continue
        if ours in said.values:
            said.wrong.append(f"{said.place((theirs,))}: {theirs} is what {ours} is; one of them is enough")
        said.values[ours] = said.values.pop(theirs)
        said.move((theirs,), (ours,))


def _understand_bundle_config(said: Said) -> None:
    config: Any = said.values.pop("bundle_config")
    at: Loc = ("bundle_config",)
    if isinstance(config, list) and len(config) == 1:
        config, at = config[0], (*at, 0)
    parser = said.values.get("bundle_parser", said.values.get("parser", PARSERS[0]))
    is_ours = parser in PARSERS
    if not isinstance(config, dict) or (is_ours and set(config) != {"directories_to_scan"}):
        said.wrong.append(f"{said.place(at)}: bundle_config must hold `directories_to_scan: [...]`, and nothing else")
        return
    options = dict(config)
    if "directories_to_scan" in options:
        said.values["directories_to_scan"] = options.pop("directories_to_scan")
        said.move((*at, "directories_to_scan"), ("directories_to_scan",))
    if options and "options" in said.values:
        said.wrong.append(f"{said.place(at)}: bundle_config is what options is; one of them is enough")
    elif options:
        said.values["options"] = options
        said.move(at, ("options",))
