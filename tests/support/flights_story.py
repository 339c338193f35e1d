"""docs/how-to/a-year-of-flights.md as steps, and a real manager beside which they are done."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from backfill_manager.cli.app import run
from backfill_manager.cli.context import CliContext
from backfill_manager.execution.spark.catalog import register_tables
from backfill_manager.settings import Settings, load_settings
from support.manager_process import PatientClock, manager_in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "a-year-of-flights.md"
TABLES = ("flights_raw", "weather_raw", "flights_clean", "flights_by_day", "flights_by_month")
_PART = re.compile(
    r"^```(?P<kind>python|diff|console)\n(?P<text>.*?)^```(?:\n\n^```text\n(?P<shown>.*?)^```)?"
    r"|^!\[[^]]*\]\(\.\./images/(?P<picture>[^)]*)\)",
    re.MULTILINE | re.DOTALL,
)
# What is another one each time the page is followed, or depends on the other files of the bundle.
_VOLATILE = {
    r"\b[0-9a-f]{12}\b": "ID", r"\b20[2-9]\d-\d\d-\d\dT[\d:.]+Z": "NOW", r", in [\d. a-z]+\.": ", in TIME.",
    r"version \d+ \(then: \d+\)": "version N",
    r"\(\d+ DAGs in \d+ files?\)": "(all files)", r"─+": "─", r" +": " ",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    kind: Literal["file", "diff", "bfm", "python", "picture"]
    text: str  # of a picture its file
    shown: str = ""  # that it prints, by the page; `...` stands for any lines


def steps() -> Iterator[Step]:
    """Those of the page, in its order."""
    for found in _PART.finditer(PAGE.read_text(encoding="utf-8")):
        kind, text = found["kind"], found["text"]
        if found["picture"]:
            yield Step("picture", found["picture"])
        elif kind == "console":
            for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                yield Step("bfm", *command.split("\n", 1))
        elif kind == "python":
            yield Step("file" if text.startswith("# jobs/") else "python", text, found["shown"] or "")
        else:
            yield Step("diff", text)


def is_printed(shown: str, printed: str) -> bool:
    """Whether all that is shown is printed, and nothing else but where `...` stands."""
    lines = (r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in _stable(shown))
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _stable(printed))) is not None


def _stable(text: str) -> list[str]:
    for pattern, instead in _VOLATILE.items():
        text = re.sub(pattern, instead, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


class Story:
    def __init__(self, spark: SparkSession, settings: Settings, conf: Path, file: Path) -> None:
        self.spark, self.settings = spark, settings
        self._conf, self._file = conf, file

    def do(self, step: Step) -> tuple[int, str]:
        """The exit code, and what was printed: standard output before standard error."""
        if step.kind == "file":
            self._file.write_text(step.text)
        elif step.kind == "diff":
            self._edit(step.text)
        elif step.kind == "bfm":
            _, *words = shlex.split(step.text)
            return self._bfm(words)
        elif step.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(step.text, {"spark": self.spark})
            return 0, printed.getvalue()
        return 0, ""

    def _edit(self, diff: str) -> None:
        """Each hunk is found by its own lines."""
        now = self._file.read_text()
        for hunk in filter(None, re.split(r"^@@.*\n", diff, flags=re.MULTILINE)):
            lines = hunk.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] != other) for other in "+-")
            assert now.count(old) == 1, f"it is there once: {old}"
            now = now.replace(old, new)
        self._file.write_text(now)

    def _bfm(self, words: list[str]) -> tuple[int, str]:
        where = ("--conf", str(self._conf), "--state", self.settings.state)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run((*where, *words), CliContext(environ={}, clock=PatientClock()))
        said = [line for line in err.getvalue().splitlines(keepends=True) if not line.startswith("timestamp=")]
        return code, out.getvalue() + "".join(said)


@contextmanager
def flights_story(spark: SparkSession, folder: Path) -> Iterator[Story]:
    """With the raw flights in the warehouse, and a manager in this process that has `folder` for its state and its bundle."""
    warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    bundle, conf = folder / "bundle", folder / "manager.yaml"
    bundle.mkdir()
    conf.write_text(f"bundles:\n- {{name: examples, path: '{bundle}', fetch_interval: 3600}}\n")
    settings = load_settings(str(conf), state=str(folder / "state"), environ={})
    _write_raw_tables(warehouse)
    register_tables(spark)
    story = Story(spark, settings, conf, bundle / "a_year.py")
    story.do(next(steps()))
    try:
        with manager_in_thread(settings, spark):
            yield story
    finally:
        for name in TABLES:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
            shutil.rmtree(warehouse / name, ignore_errors=True)


def _write_raw_tables(warehouse: Path) -> None:
    sys.path.insert(0, str(REPOSITORY / "jobs"))
    try:
        import raw_flights

        raw_flights.prepare(str(warehouse), lambda _: None)
    finally:
        sys.path.remove(str(REPOSITORY / "jobs"))
