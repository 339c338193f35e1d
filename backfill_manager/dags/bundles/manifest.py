"""`manifest.yaml` in a bundle's root: settings of the bundle, set by the bundle itself.

    version: v1beta
    parser: standard
    fetch_interval: 5 minutes
    directories:
      - {path: glacier, scan_interval: 1 day, min_file_parse_interval: 1 day}

The manager's own configuration wins; of `options`, option by option.
AIP-85's spelling of the same is understood too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from backfill_manager.dags.bundles.files import MAX_DATA_FILE_SIZE, read
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import PARSERS, BundleRules, BundleSettings, RawSettings, unknown_parser
from backfill_manager.yaml_reader import Loc

MANIFEST: Final = "manifest.yaml"
VERSION: Final = "v1beta"
_ORIGIN: Final = set(BundleSettings.model_fields) - set(BundleRules.model_fields)
_AIP_85_KEYS: Final = {
    "bundle_parser": "parser", "bundle_fetch_interval": "fetch_interval", "directories_to_scan": "directories",
}  # fmt: skip
_AIP_85_PARSERS: Final = {
    "StandardBundleParser": "standard",
    "SinglePassBundleParser": "single_pass",
    "EventBasedBundleParser": "event",
}


class Manifest(BundleRules):
    version: Literal["v1beta"]


def with_manifest(settings: BundleSettings, root: Path) -> tuple[BundleSettings, dict[Loc, str]]:
    """The settings of the bundle in `root` with its manifest's where they set nothing (`options` are merged), and the places
    in the manifest. `InvalidConfig` has a line, with its place, for each thing that is wrong there."""
    content = read(root / MANIFEST)
    if content is None:
        if (root / MANIFEST).is_file():
            raise InvalidConfig(f"{MANIFEST}: is larger than {MAX_DATA_FILE_SIZE >> 20} MB")
        return settings, {}
    raw = RawSettings()
    raw.places[()] = f"{MANIFEST}, line 1"
    raw.add_yaml(content, MANIFEST, example=f"version: {VERSION}")
    _refuse_origin_keys(raw)
    _convert_aip_85(raw)
    keys = set(raw.values)
    _apply_effective_parser(raw, settings)
    rules = raw.validate(Manifest)
    keys &= raw.values.keys() - {"version"} - settings.model_fields_set
    update = {**{key: getattr(rules, key) for key in keys}, "options": {**rules.options, **settings.options}}
    return settings.model_copy(update=update), raw.places


def _apply_effective_parser(raw: RawSettings, settings: BundleSettings) -> None:
    """The configuration's, if it names one: options for another parser are then ignored."""
    name = raw.values.get("parser", settings.parser)
    if not isinstance(name, str):
        return  # an error of validation
    if "parser" not in settings.model_fields_set:
        unknown = unknown_parser(name)
        if unknown and not unknown_parser(name, misspelt=True):  # else it is an error of validation
            raw.errors.append(f"{raw.place(('parser',))}: parser {unknown}")
    elif name != settings.parser:
        raw.values.pop("options", None)
    raw.values["parser"] = settings.parser if "parser" in settings.model_fields_set else name


def _refuse_origin_keys(raw: RawSettings) -> None:
    if "version" not in raw.values:
        raw.errors.append(f"{raw.place(())}: version is missing; `version: {VERSION}` is supported")
        raw.values["version"] = VERSION
    for key in [key for key in raw.values if key in _ORIGIN]:
        raw.errors.append(f"{raw.place((key,))}: {key} is set in the configuration file, not by the bundle itself")
        del raw.values[key]


def _convert_aip_85(raw: RawSettings) -> None:
    """Bring AIP-85's keys to ours: `bundle_parser`, `bundle_fetch_interval`, and `bundle_config`, a mapping or a list of one
    mapping, with `directories_to_scan`; its other keys are options of a parser that is not ours."""
    parser = raw.values.get("bundle_parser")
    if isinstance(parser, str):
        raw.values["bundle_parser"] = _AIP_85_PARSERS.get(parser, parser)
    if "bundle_config" in raw.values:
        _convert_bundle_config(raw)
    for theirs, ours in _AIP_85_KEYS.items():
        if theirs in raw.values:
            if ours in raw.values:
                raw.errors.append(f"{raw.place((theirs,))}: {theirs} is what {ours} is; one of them is enough")
            raw.values[ours] = raw.values.pop(theirs)
            raw.move((theirs,), (ours,))


def _convert_bundle_config(raw: RawSettings) -> None:
    config: Any = raw.values.pop("bundle_config")
    at: Loc = ("bundle_config",)
    if isinstance(config, list) and len(config) == 1:
        config, at = config[0], (*at, 0)
    is_ours = raw.values.get("bundle_parser", raw.values.get("parser", PARSERS[0])) in PARSERS
    if not isinstance(config, dict) or (is_ours and set(config) != {"directories_to_scan"}):
        raw.errors.append(f"{raw.place(at)}: bundle_config must hold `directories_to_scan: [...]`, and nothing else")
        return
    options = dict(config)
    if "directories_to_scan" in options:
        raw.values["directories_to_scan"] = options.pop("directories_to_scan")
        raw.move((*at, "directories_to_scan"), ("directories_to_scan",))
    if options and "options" in raw.values:
        raw.errors.append(f"{raw.place(at)}: bundle_config is what options is; one of them is enough")
    elif options:
        raw.values["options"] = options
        raw.move(at, ("options",))
