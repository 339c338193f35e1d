"""`*.sheet` files: a row per task, with the columns `dag`, `task`, `after` (names with blanks between them) and `runs`, which
is a Spark SQL text or `python module:function`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from pydantic import Field

from backfill_manager import dag, sql, task
from backfill_manager.dags.parsers import BundleParser, DagFile, ParserOptions, Submission

COLUMNS = ["dag", "task", "after", "runs"]


class SheetOptions(ParserOptions):
    delimiter: str = Field(",", min_length=1, max_length=1)
    start_date: date
    look_every: float = Field(30.0, gt=0)  # seconds


class SheetParser(BundleParser):
    name = "sheets"
    files = ("*.sheet",)
    Options = SheetOptions

    def next_scan(self, last: datetime | None) -> datetime | None:
        return self.clock.now() if last is None else last + timedelta(seconds=self.options.look_every)

    def look(self) -> Iterator[Submission]:
        fetched = self.bundle.fetch()
        if self.last_parse is None or self.changes(fetched):
            yield self.submission(fetched)

    @classmethod
    def read(cls, file: DagFile, options: SheetOptions) -> None:
        rows = csv.DictReader(io.StringIO(file.text()), delimiter=options.delimiter)
        if rows.fieldnames != COLUMNS:
            file.wrong(1, f"the columns must be {', '.join(COLUMNS)}, not {', '.join(rows.fieldnames or ['none'])}")
        dags: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for row in rows:
            if None in row.values() or None in row:
                file.wrong(rows.line_num, f"a row must have {len(COLUMNS)} cells")
            dags.setdefault(row["dag"], []).append((rows.line_num, row))
        for dag_id, tasks in dags.items():
            cls._make(file, options, dag_id, tasks)

    @staticmethod
    def _make(file: DagFile, options: SheetOptions, dag_id: str, rows: list[tuple[int, dict[str, Any]]]) -> None:
        first_line = rows[0][0]

        def body() -> None:
            made: dict[str, Any] = {}
            for line, row in rows:
                with file.at(line):
                    kind, _, reference = row["runs"].partition(" ")
                    if kind == "python":
                        made[row["task"]] = task(task_id=row["task"])(file.function(reference))()
                    else:
                        made[row["task"]] = sql(row["task"], row["runs"])
                    for before in row["after"].split():
                        if before not in made:
                            file.wrong(line, f"task {row['task']!r} comes after {before!r}, which is not above it")
                        made[before] >> made[row["task"]]

        with file.at(first_line):
            dag(dag_id, schedule="@daily", start_date=options.start_date.isoformat())(body)
