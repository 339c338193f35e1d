"""The documentation is checked: links and anchors lead somewhere, commands and examples parse, the reference is up to date."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.named_tests import exists, named_tests

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]
WRITTEN_BY_HAND = [name for name in NAMES if not name.startswith("docs/reference/")]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _script("generate_reference")
COMMANDS: dict[str, Any] = dict(reference.cli_commands())


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def blocks(name: str, *languages: str) -> list[str]:
    return [found["text"] for found in FENCE.finditer(text_of(name)) if found["language"] in languages]


def without_blocks(text: str) -> str:
    return FENCE.sub("", text)


# -- links ------------------------------------------------------------------------------------------------------------
def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", without_blocks(page.read_text(encoding="utf-8")), re.MULTILINE):
        name = reference.anchor(re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading))
        names.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return names


def wrong_links(page: Path, text: str) -> list[str]:
    wrong = []
    for target in re.findall(r"(?<!\!)\]\(([^)\s]+)\)|!\[[^]]*\]\(([^)\s]+)\)", without_blocks(text)):
        link = "".join(target)
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(file):
            wrong.append(f"{link}: no such heading")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_links_and_anchors_lead_somewhere(name: str) -> None:
    assert wrong_links(REPOSITORY / name, text_of(name)) == []


def test_a_wrong_link_is_found() -> None:
    text = "[a](gone.md) [b](semantics.md#gone) [c](semantics.md) [d](https://example.org) ![e](images/gone.png)"
    wrong = wrong_links(DOCS / "index.md", text)
    assert wrong == ["gone.md: no such file", "semantics.md#gone: no such heading", "images/gone.png: no such file"]


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            links = re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
            waiting += [(page.parent / link).resolve() for link in links]
    assert [name for name in NAMES if (REPOSITORY / name).resolve() not in reached] == []


# -- commands ---------------------------------------------------------------------------------------------------------
def command_lines(name: str) -> Iterator[str]:
    """Every `bfm ...` of a page, in blocks of commands and in running text."""
    text = text_of(name)
    for block in blocks(name, "console", "bash", "sh", ""):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"(?:\$ )?(?:\.venv/bin/)?bfm (.+)", line.strip()):
                yield found[1]
    yield from re.findall(r"(?<!`)`bfm ([^`]+)`(?!`)", without_blocks(text))


def wrong_command(line: str) -> str | None:
    """What is wrong with the words after `bfm`: no such command, no such option. Values are not looked at."""
    words = shlex.split(line.partition(" #")[0].replace("…", " ... "), posix=True)
    path: list[str] = []
    options: list[str] = []
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-\d+", word):
            options.append(word.partition("=")[0])
        elif len(path) < 2 and not any(" ".join(path) == known for known in COMMANDS):
            candidate = " ".join([*path, word])
            if any(known == candidate or known.startswith(candidate + " ") for known in COMMANDS):
                path.append(word)
            elif path and not re.fullmatch(r"[A-Z.]+|\.\.\.", word):
                return f"bfm {line}: there is no command `bfm {candidate}`"
            elif not path and not options:
                return f"bfm {line}: there is no command `bfm {word}`"
    known_options = {"--help", "-h", "--version", "--state", "--server", "--conf", "--output", "--debug"}
    if command := COMMANDS.get(" ".join(path)):
        for param in command.params:
            known_options |= {*param.opts, *param.secondary_opts}
    elif options and path:
        known_options |= {
            spelling
            for known, command in COMMANDS.items()
            if known.startswith(" ".join(path) + " ")
            for param in command.params
            for spelling in (*param.opts, *param.secondary_opts)
        }
    unknown = [option for option in options if option not in known_options]
    return f"bfm {line}: there is no option {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "CHANGELOG.md"])
def test_commands_and_their_options_exist(name: str) -> None:
    assert [wrong for line in command_lines(name) if (wrong := wrong_command(line))] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("backfil list", "no command `bfm backfil`"),
        ("backfill lst", "no command `bfm backfill lst`"),
        ("backfill create flights --form 2013-01-01", "no option --form"),
        ("--state ./x state adopt --as-cpy", "no option --as-cpy"),
    ],
)
def test_a_wrong_command_is_found(line: str, wrong: str) -> None:
    assert wrong in str(wrong_command(line))


@pytest.mark.parametrize(
    "line", ["backfill create DAG -s T", "--server URL …", "state …", "dags test", "backfill", "--version"]
)
def test_a_right_command_passes(line: str) -> None:
    assert wrong_command(line) is None


# -- examples ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", WRITTEN_BY_HAND)
def test_examples_are_valid_python_yaml_and_json(name: str) -> None:
    for block in blocks(name, "python", "py"):
        ast.parse(block)
    for block in blocks(name, "yaml"):
        list(yaml.safe_load_all(block))
    for block in blocks(name, "json"):
        json.loads(block)


HOW_TO_DAGS = [
    (name, block)
    for name in WRITTEN_BY_HAND
    if name not in ("README.md", "docs/authoring.md")  # test_readme.py, test_authoring_guide.py
    for block in blocks(name, "python")
    if re.search(r"^@dag\(", block, re.MULTILINE) and "from backfill_manager import" in block
]


@pytest.mark.parametrize(("name", "block"), HOW_TO_DAGS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(HOW_TO_DAGS)])
def test_dags_of_the_docs_load(name: str, block: str, tmp_path: Path) -> None:
    from backfill_manager.dags.parsers.local_parse import parse_bundle
    from backfill_manager.settings import BundleSettings

    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "example.py").write_text(block)
    scan = parse_bundle(BundleSettings(name="docs", path=str(bundle)), snapshots=tmp_path / "snapshots")
    assert scan.failed == () and scan.parsed[0].dags


# -- reference --------------------------------------------------------------------------------------------------------
def test_the_reference_is_up_to_date() -> None:
    assert reference.outdated() == [], "run `.venv/bin/python docs/generate_reference.py`"


def test_the_plot_of_a_long_life_shows_the_table_beside_it() -> None:
    plot = _script("plot_long_life")
    table = plot.read_table(text_of("docs/reliability.md"))
    assert {len(values) for values in table.values()} == {5} and len(table) == 6
    assert plot.drawn(table) == text_of("docs/images/long-life.svg"), "run `.venv/bin/python docs/plot_long_life.py`"


def test_every_command_route_setting_and_table_is_in_the_reference() -> None:
    from backfill_manager.model.records import TABLES
    from backfill_manager.model.states import LEGAL

    cli, rest, settings, tables, states = (
        text_of(f"docs/reference/{name}.md") for name in ("cli", "rest-api", "settings", "tables", "states")
    )
    assert [path for path in COMMANDS if f"# bfm {path}\n" not in cli] == []
    for path, operations in reference.openapi()["paths"].items():
        for method in operations:
            assert f"### {method.upper()} {path}\n" in rest
    assert [key for key in reference.setting_keys() if f"| `{key}` |" not in settings] == []
    assert [name for name in TABLES if f"## {name}\n" not in tables] == []
    for pairs in LEGAL.values():
        assert [pair for pair in pairs if f"    {pair[0]} --> {pair[1]}\n" not in states] == []


EXAMPLE = "jobs/bundles/first.py"  # made by the reader of docs/how-to/first-dag.md


# -- paths ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in WRITTEN_BY_HAND if name != "CHANGELOG.md"])
def test_files_that_are_named_exist(name: str) -> None:
    roots = (REPOSITORY, REPOSITORY / "backfill_manager", (REPOSITORY / name).parent)
    named = re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|sql|sh|yaml)))`", text_of(name))
    assert [path for path in named if path != EXAMPLE and not any((root / path).exists() for root in roots)] == []


# -- tests ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in WRITTEN_BY_HAND if name != "CHANGELOG.md"])
def test_tests_that_are_named_exist(name: str) -> None:
    assert [test for test in named_tests(without_blocks(text_of(name))) if not exists(test)] == []


def lines_without_a_test(page: str) -> list[str]:
    """The claims `- **...**` that name no test, of each section in which one does."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    claims = (
        re.findall(r"^- \*\*.+?(?=^- |^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        for text in sections
        if named_tests(text)
    )
    return [claim.splitlines()[0] for of_section in claims for claim in of_section if not named_tests(claim)]


@pytest.mark.parametrize("name", ["docs/isolation.md", "docs/reliability.md"])
def test_each_line_of_what_is_promised_names_a_test(name: str) -> None:
    assert lines_without_a_test(text_of(name)) == []


def test_a_line_without_a_test_is_found() -> None:
    held = "- **A** line.<br>\n  `tests/test_docs.py::test_a_line_without_a_test_is_found`\n"
    assert lines_without_a_test(f"## One\n\n- **No** promise.\n\n## Two\n\n{held}- **B** is new.\n{held}") == [
        "- **B** is new."
    ]


def test_the_worked_example_of_contributing_applies_to_the_code_and_edits_at_most_five_files() -> None:
    (diff,) = blocks("CONTRIBUTING.md", "diff")
    assert len(re.findall(r"^\+\+\+ ", diff, re.MULTILINE)) <= 5
    checked = subprocess.run(
        ["git", "apply", "--check", "-"], cwd=REPOSITORY, input=diff, text=True, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
