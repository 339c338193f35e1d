"""The `manifest.yaml` of a bundle, what overrides it, and the errors of its mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backfill_manager.dags.bundles.files import MAX_DATA_FILE_SIZE
from backfill_manager.dags.bundles.manifest import with_manifest
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import BundleSettings

DOCS = Path(__file__).parents[2] / "docs" / "bundles.md"


def settings_by(root: Path, text: str, **configured: object) -> BundleSettings:
    (root / "manifest.yaml").write_text(text)
    settings = BundleSettings(name="b", path=str(root), **configured)  # type: ignore[arg-type]
    return with_manifest(settings, root)[0]


def wrong(root: Path, text: str) -> list[str]:
    with pytest.raises(InvalidConfig) as message:
        settings_by(root, text)
    return str(message.value).splitlines()


def test_a_bundle_without_a_manifest_is_as_configured(tmp_path: Path) -> None:
    settings = BundleSettings(name="b", path=str(tmp_path))
    assert with_manifest(settings, tmp_path)[0] is settings


def test_a_manifest_sets_how_its_bundle_is_read(tmp_path: Path) -> None:
    settings = settings_by(
        tmp_path,
        "version: v1beta\nparser: event\nfetch_interval: 5 minutes\nimport_memory: 512\nkeep_last_good: false\n"
        "directories:\n- {path: glacier, scan_interval: 1 day, min_file_parse_interval: 2h}\n",
    )
    assert (settings.name, settings.path, settings.parser) == ("b", str(tmp_path), "event")
    assert (settings.fetch_interval, settings.import_timeout) == (300, 30)
    assert (settings.import_memory, settings.keep_last_good) == (512, False)
    assert [(d.path, d.scan_interval, d.min_file_parse_interval) for d in settings.directories] == [
        ("glacier", 86400, 7200)
    ]


def test_the_managers_configuration_wins_even_where_it_is_the_default(tmp_path: Path) -> None:
    text = "version: v1beta\nfetch_interval: 300\nimport_timeout: 60\n"
    settings = settings_by(tmp_path, text, fetch_interval=30.0)
    assert (settings.fetch_interval, settings.import_timeout) == (30, 60)


@pytest.mark.parametrize("config", ["- directories_to_scan:\n      - ", "  directories_to_scan:\n    - "])
def test_the_spelling_of_aip_85_is_understood(tmp_path: Path, config: str) -> None:
    settings = settings_by(
        tmp_path,
        "version: v1beta\nbundle_parser: StandardBundleParser\nbundle_fetch_interval: 5 minutes\nbundle_config:\n"
        f"{config}{{path: /glacier/, scan_interval: 1 day, min_file_parse_interval: 1 day}}\n",
    )
    assert (settings.parser, settings.fetch_interval) == ("standard", 300)
    (directory,) = settings.directories
    assert (directory.path, directory.scan_interval, directory.min_file_parse_interval) == ("glacier", 86400, 86400)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("StandardBundleParser", "standard"),
        ("SinglePassBundleParser", "single_pass"),
        ("EventBasedBundleParser", "event"),
        ("event", "event"),
    ],
)
def test_parsers_have_a_name_in_aip_85_too(tmp_path: Path, theirs: str, ours: str) -> None:
    assert settings_by(tmp_path, f"version: v1beta\nbundle_parser: {theirs}\n").parser == ours


def test_every_mistake_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    text = "path: elsewhere\nparser: evnt\nfetch_intervall: 3\ndirectories:\n- path: ../a\n- path: b\n  scan_interval: soon\n"
    assert wrong(tmp_path, text) == [
        "manifest.yaml, line 1: version is missing; `version: v1beta` is supported",
        "manifest.yaml, line 1: path is set in the configuration file, not by the bundle itself",
        "manifest.yaml, line 2: parser must be 'standard', 'single_pass' or 'event', not 'evnt'; did you mean 'event'?",
        "manifest.yaml, line 5: directories[0].path must be a folder inside the bundle such as `reports/daily`, not '../a'",
        "manifest.yaml, line 7: directories[1].scan_interval must be seconds, or a time such as `90s`, `5 minutes`, `2h` "
        "or `1 day`, not 'soon'",
        "manifest.yaml, line 3: fetch_intervall is not a setting; did you mean 'fetch_interval'?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "manifest.yaml, line 1: version is missing"),
        ("version: v2", "manifest.yaml, line 1: version must be 'v1beta', not 'v2'"),
        ("- a", "manifest.yaml, line 1: must hold keys such as `version: v1beta`."),
        ("version: v1beta\nparser: [", "manifest.yaml, line 2: not valid YAML"),
        ("version: v1beta\nparser: \0", "manifest.yaml, line 2: not valid YAML: the character U+0000 is not allowed"),
        (
            "version: v1beta\nparser: 2013-13-45",
            "manifest.yaml, line 2: '2013-13-45' can't be read: month must be in 1..12",
        ),
        ("version: v1beta\nparser: event\nparser: event", "manifest.yaml, line 3: 'parser' is here twice"),
        (
            "version: v1beta\nparser: event\nbundle_parser: standard",
            "manifest.yaml, line 3: bundle_parser is what parser is; one of them is enough",
        ),
        (
            "version: v1beta\nbundle_config:\n- directories: []",
            "manifest.yaml, line 3: bundle_config must hold `directories_to_scan: [...]`, and nothing else",
        ),
        (
            "version: v1beta\nbundle_config:\n- directories_to_scan:\n  - {path: a}\n  - path: a/\n",
            "manifest.yaml, line 3: directories each path once; twice here: a",
        ),
        (
            "version: v1beta\nbundle_config:\n- directories_to_scan:\n  - path: a\n    scan: 3\n",
            "manifest.yaml, line 5: directories[0].scan is not a setting",
        ),
        ("version: v1beta\nkeep_last_good: perhaps", "line 2: keep_last_good must be true or false, not 'perhaps'"),
        ("version: v1beta\nimport_memory: 1.5", "line 2: import_memory must be a whole number, not 1.5"),
        ("version: v1beta\n#" + "x" * MAX_DATA_FILE_SIZE, "manifest.yaml: is larger than 1 MB"),
    ],
)
def test_a_wrong_manifest_is_reported_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (line,) = wrong(tmp_path, text)
    assert message in line


def test_a_manifest_that_is_no_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match=r"^manifest\.yaml, line 1: not UTF-8 text"):
        with_manifest(BundleSettings(name="b", path=str(tmp_path)), tmp_path)


def test_the_manifests_in_the_documentation_are_understood(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(version: .+?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    # See the guide's own tests.
    read = [settings_by(tmp_path, block) for block in blocks if "parser: nightly" not in block]
    assert [(bundle.parser, bundle.fetch_interval, len(bundle.directories)) for bundle in read] == [
        ("standard", 30, 1),
        ("standard", 300, 1),
        ("standard", 300, 1),
    ]


def test_max_file_parse_interval_is_set_for_a_bundle_and_for_a_folder(tmp_path: Path) -> None:
    text = (
        "version: v1beta\nmax_file_parse_interval: 5 minutes\n"
        "directories: [{path: a, max_file_parse_interval: 90s}, {path: b, min_file_parse_interval: 5}]\n"
    )
    settings = settings_by(tmp_path, text)
    assert settings.max_file_parse_interval == 300
    assert [directory.max_file_parse_interval for directory in settings.directories] == [90, None]
    assert settings_by(tmp_path, text, max_file_parse_interval=7).max_file_parse_interval == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_file_parse_interval: 0.5", "line 2: max_file_parse_interval must be 1 second or more, not 0.5 seconds"),
        ("max_file_parse_interval: 0", "line 2: max_file_parse_interval must be more than 0, not 0"),
        (
            "max_file_parse_interval: often",
            "must be seconds, or a time such as `90s`, `5 minutes`, `2h` or `1 day`, not 'often'",
        ),
        ("max_file_parse_intervall: 5", "line 2: max_file_parse_intervall is not a setting; did you mean"),
        (
            "directories: [{path: a, min_file_parse_interval: 2h, max_file_parse_interval: 1h}]",
            "directories[0] must let 'a' have a max_file_parse_interval that is no shorter than its min_file_parse_interval, "
            "not 3600 and 7200 seconds",
        ),
        (
            "max_file_parse_interval: 60\ndirectories: [{path: a, min_file_parse_interval: 2h}]",
            "line 1: must let 'a' have a max_file_parse_interval that is no shorter than its min_file_parse_interval",
        ),
        (
            "parser: event\nmax_file_parse_interval: 60",
            "line 1: must leave out max_file_parse_interval: the parser 'event' reads no file a second time by itself",
        ),
    ],
)
def test_a_max_file_parse_interval_that_can_not_be_is_reported(text: str, message: str, tmp_path: Path) -> None:
    (line,) = wrong(tmp_path, f"version: v1beta\n{text}\n")
    assert message in line


def test_options_for_a_parser_that_the_configuration_overrules_are_ignored(tmp_path: Path) -> None:
    settings = settings_by(tmp_path, "version: v1beta\nparser: no_such_parser\noptions: {x: 1}\n", parser="event")
    assert (settings.parser, settings.options) == ("event", {})
