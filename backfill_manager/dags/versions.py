"""Decides what a submission changes in the state: a pure function from the existing rows to the rows to be written.

- A DAG gets a new version when its definition changes, or the code that it may run: every file of the bundle but
  those that make other DAGs (unless its own file reads them). An edit of one DAG leaves the others alone. A file that
  looks as if it made DAGs and was never parsed counts as one that does.
- A file that can't be loaded keeps its last good DAGs as they are, with the error beside them (`keep_last_good`; without
  it they become inactive).
- An id belongs to the file that holds it already; else to the first by name. Another file that claims it gets an error
  that names the holder, and none of its DAGs is taken: a file counts whole or not at all.
- A file that was moved takes its DAGs along: they get a version that names the new place.
- A DAG that no file makes any more becomes inactive; its versions and runs stay. When it comes back, they continue.
- A DAG that a person deactivated comes back with new content, or when its file is parsed on request.
  Until then its file holds the id: no other file of the bundle can activate it.
- Files that the submission doesn't cover stay as they are.
- A bundle that can't be fetched changes nothing but its error: an unmounted disk deactivates no DAG.
- Nothing has changed: nothing is written, but that files were read again, at most once in `PARSED_AT_INTERVAL_S` seconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from backfill_manager.clock import format_instant
from backfill_manager.dags.bundles.files import BundleContent, hash_of
from backfill_manager.dags.bundles.manifest import MANIFEST
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.importing.import_failure import FailedFile, to_utf8
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record
from backfill_manager.model.stored_json import shown_column
from backfill_manager.schemas import errors

if TYPE_CHECKING:  # `queries` use this module, and must not load what imports DAG files
    from backfill_manager.dags.importing.loader import ParsedFile

PARSED_AT_INTERVAL_S: Final = 60.0


@dataclass(frozen=True)
class Submission:
    """What a bundle parser submits: what some files of a bundle define, or why they failed to import.

    `content` is all that the bundle holds at that moment, `snapshot` the folder that keeps it. It covers the files
    under `covers`, but not for those under `leaves_out` (paths within the bundle, "" is all of it; the longest one that
    fits a file counts): it has every definition and error of these, and nothing of others.

    `readable` False: the bundle itself can't be fetched, so nothing is known of its DAGs. `on_request`: a person requested it,
    so what was deactivated by hand comes back."""

    bundle: str
    path: str
    parser: str
    content: BundleContent
    snapshot: str = ""
    commit_id: str | None = None
    parsed: tuple[ParsedFile, ...] = ()
    failed: tuple[FailedFile, ...] = ()
    covers: tuple[str, ...] = ("",)
    leaves_out: tuple[str, ...] = ()
    deactivates: bool = True  # DAGs that no file makes any more
    keep_last_good: bool = True  # DAGs of a file that fails now go on as they were
    readable: bool = True
    on_request: bool = False
    parsed_at: datetime | None = None  # when files were read for it; None: none was
    settings_json: str | None = None  # how the bundle is read: configuration and manifest together
    reader_json: str | None = None  # what made the DAGs of its files, where it was a parser's own `read` (DagVersion)
    python: str | None = None  # the interpreter that read its files, for their tasks; None: the manager's
    airflow_files: tuple[str, ...] = ()  # on request: files of Airflow that were passed over

    def covers_file(self, file: str) -> bool:
        for path in paths_to(file):
            if path in self.leaves_out:
                return False
            if path in self.covers:
                return True
        return False


def paths_to(file: str) -> list[str]:
    """`a/b/c.py` -> `a/b/c.py`, `a/b`, `a`, ``: from the file to the bundle's root."""
    parts = file.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), -1, -1)]


def changes_for(
    submission: Submission,
    dags: Iterable[DagRow],
    versions: Iterable[DagVersion],
    problems: Iterable[ImportProblem],
    at: datetime,
    bundle: BundleRow | None = None,
) -> list[Record]:
    """Rows to write. `dags` are those of every bundle (ids are shared), `versions` the newest of each DAG (more do no
    harm), `problems` and `bundle` this bundle's as they are now."""
    existing = {row.dag_id: row for row in dags}
    current_problems = {p.file: p for p in problems if p.bundle == submission.bundle and p.is_current}
    newest = {version.dag_id: version for version in sorted(versions, key=lambda version: version.version)}

    accepted, conflicts = _without_conflicts(submission, existing)
    failed = {to_utf8(failure.file): failure for failure in (*submission.failed, *conflicts)}
    helpers = shown_column(bundle, "helpers_json") or [] if bundle else []
    code = _Code(submission, existing, current_problems, helpers)
    rows: list[Record] = []
    defined: set[str] = set()
    for parsed in accepted:
        digest = code.of(parsed)
        for dag_id, definition in zip(parsed.dag_ids, parsed.definitions, strict=True):
            defined.add(dag_id)
            rows += _dag_rows(submission, parsed.file, definition, digest, existing.get(dag_id), newest.get(dag_id), at)
    if submission.readable:
        rows += [
            row.evolve(is_active=False, updated_at=at)
            for row in existing.values()
            if row.is_active and row.dag_id not in defined and _is_gone(submission, row, failed)
        ]
        if submission.covers:
            rows += _bundle_rows(submission, code.helpers, bundle, at)
    return rows + _problem_rows(submission, failed, current_problems, at)


def why_inactive(row: DagRow, problem: ImportProblem | None) -> str:
    """`problem`: the import error of its file, if there is one."""
    since = format_instant(row.updated_at.replace(microsecond=0))  # nothing changes a row while it is inactive
    if row.deactivated_by is not None:
        back = f"parsing the bundle {row.bundle!r} on request brings it back, as long as {row.file} defines it"
        return f"{row.deactivated_by} deactivated it at {since}; {back}"
    if problem is not None and problem.is_current:
        line = "" if problem.line is None else f"line {problem.line}: "
        return (
            f"{row.file} of the bundle {row.bundle!r} can't be read ({line}{problem.message}); inactive since {since}"
        )
    return f"{row.file} of the bundle {row.bundle!r} is gone or no longer defines it, since {since}"


def refuse_inactive(row: DagRow, problem: ImportProblem | None) -> None:
    """`Refused` for a DAG that is not active: its runs can be shown and cleared, no new ones requested."""
    if not row.is_active:
        hint = "parse_bundle" if row.deactivated_by is not None else None
        raise errors.DAG_INACTIVE(dag_id=row.dag_id, why=why_inactive(row, problem), bundle=row.bundle, hint=hint)


def _is_gone(submission: Submission, row: DagRow, failed: Mapping[str, FailedFile]) -> bool:
    """No file makes it any more, as far as this submission can tell."""
    if row.bundle != submission.bundle or not submission.deactivates or not submission.covers_file(row.file):
        return False
    return row.file not in failed or not submission.keep_last_good


def _without_conflicts(
    submission: Submission, existing: Mapping[str, DagRow]
) -> tuple[list[ParsedFile], list[FailedFile]]:
    """The files that are accepted, and an error for each that claims an id of another. Files that hold ids come first, then the
    others by name; one that is rejected takes no id from those after it."""
    holders = _holders(submission, existing)
    holding = set(holders.values())
    accepted, rejected = [], []
    for parsed in sorted(submission.parsed, key=lambda one: ((submission.bundle, one.file) not in holding, one.file)):
        mine = (submission.bundle, parsed.file)
        foreign = next((dag_id for dag_id in parsed.dag_ids if holders.get(dag_id, mine) != mine), None)
        if foreign is None:
            accepted.append(parsed)
            holders.update(dict.fromkeys(parsed.dag_ids, mine))
            continue
        rejected.append((parsed, mine, {foreign: holders[foreign]}))
        if not submission.keep_last_good:
            holders = {dag_id: holder for dag_id, holder in holders.items() if holder != mine}
    conflicts = []
    for parsed, mine, at_first in rejected:  # by the holders at the end: the same error the next time
        held = at_first | holders
        foreign = next(dag_id for dag_id in parsed.dag_ids if held.get(dag_id, mine) != mine)
        bundle, file = held[foreign]
        where = file if bundle == submission.bundle else f"{file} of bundle {bundle!r}"
        first = next((one.where(foreign) for one in submission.parsed if one.file == where), None)
        where += f", line {first}" if first else ""
        message = f"DAG {foreign!r} is already made by {where}; give one of them another dag_id, or take one away"
        conflicts.append(FailedFile(parsed.file, parsed.where(foreign), message))
    return accepted, conflicts


def _holders(submission: Submission, existing: Mapping[str, DagRow]) -> dict[str, tuple[str, str]]:
    """DAG id -> bundle and file that it belongs to, of the ids that the submission claims: another bundle's for as long as
    they are active there, its own for as long as their file makes them, or its file can't be read."""
    failed = {failure.file for failure in submission.failed}
    claims = {parsed.file: set(parsed.dag_ids) for parsed in submission.parsed}

    def still_makes(file: str, dag_id: str) -> bool:
        if file in claims:
            return dag_id in claims[file]
        if file in failed:
            return submission.keep_last_good
        return file in submission.content.files and not submission.covers_file(file)

    def is_held(row: DagRow) -> bool:
        if row.bundle != submission.bundle:
            return row.is_active
        return (row.is_active or row.deactivated_by is not None) and still_makes(row.file, row.dag_id)

    rows = (existing[dag_id] for ids in claims.values() for dag_id in ids if dag_id in existing)
    return {row.dag_id: (row.bundle, row.file) for row in rows if is_held(row)}


class _Code:
    """Hashes of the code that the DAGs of a file may run or read, even if only a task imports it: all of the bundle but
    files that make other DAGs. `helpers`: the files that look as if they made DAGs, and make none; `before`,
    as far as that was known."""

    def __init__(
        self, submission: Submission, existing: Mapping[str, DagRow], failing: Iterable[str], before: Collection[str]
    ) -> None:
        content = submission.content
        self._files = {file: digest for file, digest in content.files.items() if file != MANIFEST}
        is_maker = {parsed.file: bool(parsed.dag_ids) for parsed in submission.parsed}
        is_maker |= {failure.file: True for failure in submission.failed}
        like_makers = {row.file for row in existing.values() if row.bundle == submission.bundle and row.is_active}
        like_makers.update(content.candidates, failing)
        for file in like_makers.difference(is_maker):
            if not submission.covers_file(file):
                is_maker[file] = file not in before
        self._makers = {file for file, makes_dags in is_maker.items() if makes_dags}
        helpers = {file for file, makes_dags in is_maker.items() if not makes_dags and file in content.files}
        # one that is no candidate was parsed for the DAGs it had; when these are gone it is not parsed again
        self.helpers = sorted(helpers.intersection(content.candidates) if submission.deactivates else helpers)

    @cached_property
    def _shared(self) -> str:
        return hash_of({file: digest for file, digest in self._files.items() if file not in self._makers})

    def of(self, parsed: ParsedFile) -> str:
        own = self._makers & {parsed.file, *parsed.imported, *parsed.read}
        return hash_of({"": self._shared, **{file: self._files[file] for file in own if file in self._files}})


def _dag_rows(
    submission: Submission,
    file: str,
    definition: str,
    code: str,
    row: DagRow | None,
    last: DagVersion | None,
    at: datetime,
) -> list[Record]:
    highest = row.current_version if row is not None else 0
    reader, python = _read_by(submission, definition)
    digest = _digest(definition, code, reader, python)
    is_new = last is None or (last.content_hash, last.bundle) != (digest, submission.bundle)
    if last is not None and (last.version < highest or last.definition_json != definition):
        is_new = True  # somebody has deleted the row of the newest one, or changed its definition
    stays_off = row is not None and row.deactivated_by is not None and not submission.on_request
    if row is not None and not is_new and (row.is_active or stays_off):
        return []  # everything in the row comes from the definition
    spec = DagSpec.from_json(definition)
    schedule = f"every {timedelta(**spec.schedule)}" if isinstance(spec.schedule, dict) else spec.schedule
    number = max(last.version if last else 0, highest) + is_new
    now = DagRow(
        dag_id=spec.dag_id, bundle=submission.bundle, file=file, current_version=number,
        is_paused=row.is_paused if row else False, is_active=True, schedule=schedule,
        timezone=spec.timezone, updated_at=at, description=spec.description or None, owner=spec.owner or None,
        tags_json=json.dumps(spec.tags, ensure_ascii=False), start_date=spec.start_date, end_date=spec.end_date,
    )  # fmt: skip
    if not is_new:
        return [now]
    version = DagVersion(
        dag_id=spec.dag_id, version=number, content_hash=digest, definition_json=definition, bundle=submission.bundle,
        file=file, snapshot=submission.snapshot, created_at=at, commit_id=submission.commit_id,
        reader_json=reader, python=python,
    )  # fmt: skip
    return [version, now]


def _read_by(submission: Submission, definition: str) -> tuple[str | None, str | None]:
    """Parser and interpreter that the tasks of a DAG need again; none for one without functions of its own."""
    reader, python = submission.reader_json, submission.python
    if (reader or python) and not DagSpec.from_json(definition).has_functions:
        return None, None
    return reader, python


def _digest(definition: str, code: str, reader: str | None, python: str | None) -> str:
    made_of = [definition, code, *([reader] if reader else []), *([f"python={python}"] if python else [])]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()


def _bundle_rows(submission: Submission, helpers: list[str], row: BundleRow | None, at: datetime) -> list[Record]:
    now = BundleRow(
        name=submission.bundle, path=submission.path, parser=submission.parser,
        content_hash=submission.content.hash, refreshed_at=at, commit_id=submission.commit_id,
        helpers_json=json.dumps(helpers, ensure_ascii=False) if helpers else None,
        parsed_at=submission.parsed_at or (row.parsed_at if row else None),
        settings_json=submission.settings_json or (row.settings_json if row else None),
    )  # fmt: skip
    if row is None or now != row.evolve(refreshed_at=at, parsed_at=now.parsed_at):
        return [now]
    before, read_at = row.parsed_at, submission.parsed_at
    if read_at is None or before == read_at:
        return []
    # Files were read, and nothing else has changed: not every second, where they are read as often as that.
    is_soon = before is not None and abs((read_at - before).total_seconds()) < PARSED_AT_INTERVAL_S
    return [] if is_soon and not submission.on_request else [now.evolve(refreshed_at=row.refreshed_at)]


def _problem_rows(
    submission: Submission, failed: Mapping[str, FailedFile], current: Mapping[str, ImportProblem], at: datetime
) -> list[Record]:
    rows: list[Record] = []
    for file, failure in sorted(failed.items()):
        before = current.get(file)
        now = ImportProblem(
            bundle=submission.bundle, file=file, line=failure.line, message=failure.message,
            traceback=failure.traceback, is_current=True, first_seen_at=before.first_seen_at if before else at,
            last_seen_at=at,
        )  # fmt: skip
        if before is None or now != before.evolve(last_seen_at=at):
            rows.append(now)
    for file, problem in sorted(current.items()):
        # `.` is the bundle as a whole: it could be fetched again. Its manifest is read before anything else of it.
        is_read = file == "." or (submission.readable and (file == MANIFEST or submission.covers_file(file)))
        if is_read and file not in failed:
            rows.append(problem.evolve(is_current=False, last_seen_at=at))
    return rows
