"""What a scan of a bundle changes in the state: a pure function from what is there to the rows to be written.

- A DAG gets a new version when its definition changes, or the code that it may run: every file of the bundle but
  those that make other DAGs (unless its own file imports them). An edit of one DAG leaves the others alone.
- A file that can't be loaded keeps its last good DAGs as they are, with the error beside them.
- An id belongs to the file that holds it already; else to the first by name. Another file that claims it gets an error
  that names the holder, and none of its DAGs is taken: a file counts whole or not at all.
- A DAG that no file makes any more becomes inactive; its versions and runs stay. One that comes back goes on from them.
- A bundle whose folder can't be read changes nothing but its error: an unmounted disk deactivates no DAG.
- Nothing has changed: nothing is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from backfill_manager.dags.bundles.files import hash_of
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import BundleScan, ParsedFile
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record


def changes_for(
    scan: BundleScan,
    dags: Iterable[DagRow],
    versions: Iterable[DagVersion],
    problems: Iterable[ImportProblem],
    at: datetime,
    bundle: BundleRow | None = None,
) -> list[Record]:
    """Rows to write after `scan`. `dags` are those of every bundle (ids are shared), `versions` the newest of each DAG
    (more do no harm), `problems` and `bundle` this bundle's as they stand."""
    known = {row.dag_id: row for row in dags}
    newest: dict[str, DagVersion] = {}
    for version in versions:
        if version.dag_id not in newest or version.version > newest[version.dag_id].version:
            newest[version.dag_id] = version

    taken, clashes = _without_clashes(scan, known)
    failed = {failure.file: failure for failure in (*scan.failed, *clashes)}
    rows: list[Record] = []
    made: set[str] = set()
    for parsed in taken:
        code = _code_hash(scan, parsed)
        for spec in parsed.dags:
            made.add(spec.dag_id)
            rows += _dag_rows(scan, spec, code, known.get(spec.dag_id), newest.get(spec.dag_id), at)
    if scan.readable:
        rows += [
            row.evolve(is_active=False, updated_at=at)
            for row in known.values()
            if row.bundle == scan.bundle and row.is_active and row.dag_id not in made and row.file not in failed
        ]
        rows += _bundle_rows(scan, bundle, at)
    return rows + _problem_rows(scan, failed, problems, at)


def _without_clashes(scan: BundleScan, known: Mapping[str, DagRow]) -> tuple[list[ParsedFile], list[FailedFile]]:
    """The files that count, and an error for each that claims an id of another."""
    unreadable = {failure.file for failure in scan.failed}
    makers: dict[str, list[str]] = {}
    for parsed in scan.parsed:
        for spec in parsed.dags:
            makers.setdefault(spec.dag_id, []).append(parsed.file)
    holders: dict[str, tuple[str, str]] = {}  # dag id -> bundle and file that it belongs to
    for dag_id, files in makers.items():
        row = known.get(dag_id)
        if row is not None and row.is_active and (row.bundle != scan.bundle or row.file in {*files, *unreadable}):
            holders[dag_id] = (row.bundle, row.file)
        else:
            holders[dag_id] = (scan.bundle, min(files))
    taken, clashes = [], []
    for parsed in scan.parsed:
        foreign = next(
            (spec.dag_id for spec in parsed.dags if holders[spec.dag_id] != (scan.bundle, parsed.file)), None
        )
        if foreign is None:
            taken.append(parsed)
            continue
        bundle, file = holders[foreign]
        where = file if bundle == scan.bundle else f"{file} of bundle {bundle!r}"
        message = f"DAG {foreign!r} is already made by {where}; give one of them another dag_id, or take one away"
        clashes.append(FailedFile(parsed.file, None, message))
    return taken, clashes


def _code_hash(scan: BundleScan, parsed: ParsedFile) -> str:
    """Of every file that its DAGs may run or read, even if only a task imports it: all but other DAGs' files."""
    makers = {other.file for other in scan.parsed if other.dags} | {failure.file for failure in scan.failed}
    others = makers - {parsed.file, *parsed.imported}
    return hash_of({file: digest for file, digest in scan.content.files.items() if file not in others})


def _dag_rows(
    scan: BundleScan, spec: DagSpec, code: str, row: DagRow | None, last: DagVersion | None, at: datetime
) -> list[Record]:
    definition = spec.to_json()
    digest = hashlib.sha256(f"{definition}\0{code}".encode()).hexdigest()
    number = last.version if last else 0
    rows: list[Record] = []
    if last is None or (last.content_hash, last.bundle) != (digest, scan.bundle):
        number += 1
        version = DagVersion(
            dag_id=spec.dag_id, version=number, content_hash=digest, definition_json=definition, bundle=scan.bundle,
            file=spec.file, snapshot=scan.snapshot, created_at=at,
        )  # fmt: skip
        rows.append(version)
    now = DagRow(
        dag_id=spec.dag_id, bundle=scan.bundle, file=spec.file, current_version=number,
        is_paused=row.is_paused if row else False, is_active=True, schedule=_schedule_text(spec),
        timezone=spec.timezone, updated_at=at, description=spec.description or None, owner=spec.owner or None,
        tags_json=json.dumps(spec.tags, ensure_ascii=False), start_date=spec.start_date, end_date=spec.end_date,
    )  # fmt: skip
    if row is None or now != row.evolve(updated_at=at):
        rows.append(now)
    return rows


def _schedule_text(spec: DagSpec) -> str | None:
    """The cron expression or preset as it was written; a duration as `every 1 day, 0:00:00`."""
    if isinstance(spec.schedule, dict):
        return f"every {timedelta(**spec.schedule)}"
    return spec.schedule


def _bundle_rows(scan: BundleScan, row: BundleRow | None, at: datetime) -> list[Record]:
    now = BundleRow(
        name=scan.bundle, path=scan.path, parser=scan.parser, content_hash=scan.content_hash, refreshed_at=at
    )  # fmt: skip
    return [] if row is not None and now == row.evolve(refreshed_at=at) else [now]


def _problem_rows(
    scan: BundleScan, failed: Mapping[str, FailedFile], problems: Iterable[ImportProblem], at: datetime
) -> list[Record]:
    rows: list[Record] = []
    standing = {problem.file: problem for problem in problems if problem.bundle == scan.bundle and problem.is_current}
    for file, failure in sorted(failed.items()):
        before = standing.get(file)
        now = ImportProblem(
            bundle=scan.bundle, file=file, line=failure.line, message=failure.message, traceback=failure.traceback,
            is_current=True, first_seen_at=before.first_seen_at if before else at, last_seen_at=at,
        )  # fmt: skip
        if before is None or now != before.evolve(last_seen_at=at):
            rows.append(now)
    mended = (problem for file, problem in sorted(standing.items()) if file not in failed)
    return rows + [p.evolve(is_current=False, last_seen_at=at) for p in mended if scan.readable or p.file == "."]
