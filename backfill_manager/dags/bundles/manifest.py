"""`manifest.yaml` in a bundle's root: what the bundle says itself of how it is to be read.

    version: v1beta
    parser: standard
    fetch_interval: 5 minutes
    directories:
      - {path: glacier, scan_interval: 1 day, min_file_parse_interval: 1 day}

What the manager's own configuration says wins: who runs the manager has the last word. AIP-85's spelling of the same is
understood too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from backfill_manager.dags.bundles.files import LARGEST_DATA_FILE, read
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import DEFAULT_CONF, BundleRules, BundleSettings, Loc, Said, read_yaml, validated

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


def with_manifest(settings: BundleSettings, root: Path) -> BundleSettings:
    """A bundle's settings as they are configured, and what they leave unsaid as the manifest in `root` says it.
    `InvalidConfig` has a line, with its place, for each thing that is wrong there."""
    manifest = _read(root / MANIFEST)
    if manifest is None:
        return settings
    said = manifest.model_fields_set - {"version"} - settings.model_fields_set
    return settings.model_copy(update={key: getattr(manifest, key) for key in said})


def _read(path: Path) -> Manifest | None:
    content = read(path)
    if content is None and path.is_file():
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
    return validated(Manifest, said)


def _refuse_what_is_not_its_own(said: Said) -> None:
    if "version" not in said.values:
        said.wrong.append(f"{said.place(())}: version is missing; `version: {VERSION}` is known here")
        said.values["version"] = VERSION
    for key in [key for key in said.values if key in _ORIGIN]:
        said.wrong.append(f"{said.place((key,))}: {key} is said in {DEFAULT_CONF}, not by the bundle itself")
        del said.values[key]


def _understand_aip_85(said: Said) -> None:
    """Bring AIP-85's keys to ours: `bundle_parser`, `bundle_fetch_interval`, and `bundle_config`, a mapping or a list of one
    mapping, with `directories_to_scan`."""
    config: Any = said.values.get("bundle_config")
    at: Loc = ("bundle_config",)
    if isinstance(config, list) and len(config) == 1:
        config, at = config[0], (*at, 0)
    if isinstance(config, dict) and set(config) == {"directories_to_scan"}:
        said.values["bundle_config"] = config["directories_to_scan"]
        said.move((*at, "directories_to_scan"), ("bundle_config",))
    elif "bundle_config" in said.values:
        said.wrong.append(f"{said.place(at)}: bundle_config must hold `directories_to_scan: [...]`, and nothing else")
        del said.values["bundle_config"]
    parser = said.values.get("bundle_parser")
    if isinstance(parser, str):
        said.values["bundle_parser"] = _AIP_85_PARSERS.get(parser, parser)
    for theirs, ours in (
        ("bundle_parser", "parser"),
        ("bundle_fetch_interval", "fetch_interval"),
        ("bundle_config", "directories"),
    ):
        if theirs not in said.values:
            continue
        if ours in said.values:
            said.wrong.append(f"{said.place((theirs,))}: {theirs} is what {ours} is; one of them is enough")
        said.values[ours] = said.values.pop(theirs)
        said.move((theirs,), (ours,))
