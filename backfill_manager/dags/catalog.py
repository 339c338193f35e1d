"""The catalog of DAGs, which applies the submissions of parsers.

What a `Submission` changes is decided in `versions`. Only the manager's catalog is committed, by its next tick; anyone else
reads the tables `dag` and `dag_version`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.stored_definition import definition_of
from backfill_manager.dags.versions import Submission, changes_for, paths_to
from backfill_manager.errors import NotFound, Refused
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record


@dataclass(frozen=True)
class DagChange:
    """What happened to a DAG: `new`, `changed`, `moved`, `back` or `deactivated`; `version` is its current one now."""

    dag_id: str
    file: str
    change: str
    version: int


@dataclass(frozen=True)
class UnknownPool:
    """A pool that tasks of a DAG name and that does not exist: no import error, as it may be made later."""

    dag_id: str
    pool: str
    tasks: list[str]


@dataclass(frozen=True)
class SubmissionResult:
    """What a submission has changed."""

    bundle: str
    changes: tuple[DagChange, ...]
    dags: int  # defined by the files that it covers
    files: int  # that it covers, read now or before; 0 where the bundle itself could not be read
    errors: tuple[ImportProblem, ...]  # of these files, as they are now
    commit_id: str | None
    unknown_pools: tuple[UnknownPool, ...] = ()  # of the DAGs that changed; on request, of all that were parsed
    # On request: ids of DAGs that no file makes any more, and that were not deactivated.
    still_active: tuple[str, ...] = ()
    airflow_files: tuple[str, ...] = ()  # on request: files of Airflow, which are not read

    def to_json_document(self) -> dict[str, Any]:
        return {
            "bundle": self.bundle,
            "commit_id": self.commit_id,
            "dags": self.dags,
            "files": self.files,
            "changes": [asdict(change) for change in self.changes],
            "errors": [{"file": e.file, "line": e.line, "message": e.message} for e in self.errors],
            "unknown_pools": [asdict(one) for one in self.unknown_pools],
            "still_active": list(self.still_active),
            "airflow_files": list(self.airflow_files),
        }


class DagCatalog:
    """The rows of DAGs, versions, import errors and bundles. A catalog by itself is for dry runs: nothing of it is committed.

    Not thread-safe but for `read`, `bundle`, `files_of` and `has_released_ids`, which parsers may call from their threads."""

    def __init__(self) -> None:
        self.dags: dict[str, DagRow] = {}
        self.versions: dict[tuple[str, int], DagVersion] = {}
        self.problems: dict[tuple[str, str], ImportProblem] = {}  # current ones
        self.bundles: dict[str, BundleRow] = {}

    def put(self, row: Record) -> None:
        if isinstance(row, DagRow):
            self.dags[row.dag_id] = row
        elif isinstance(row, DagVersion):
            self.versions[row.dag_id, row.version] = row
        elif isinstance(row, ImportProblem) and row.is_current:
            self.problems[row.bundle, row.file] = row
        elif isinstance(row, ImportProblem):
            self.problems.pop((row.bundle, row.file), None)
        elif isinstance(row, BundleRow):
            self.bundles[row.name] = row

    def read(self, dag_id: str) -> tuple[DagSpec, DagVersion]:
        """The last good version. `NotFound` for a DAG that no bundle ever defined."""
        version = self.versions[dag_id, self._row(dag_id).current_version]
        return definition_of(version), version

    def _row(self, dag_id: str) -> DagRow:
        if (row := self.dags.get(dag_id)) is None:
            raise NotFound("DAG", dag_id, list(self.dags))
        return row

    def bundle(self, name: str) -> BundleRow | None:
        """The bundle's row: when its files were last parsed (`parsed_at`) and what it held then; None: never."""
        return self.bundles.get(name)

    def files_of(self, bundle: str) -> frozenset[str]:
        """The files that the bundle's active DAGs come from, and those with an error: they are read whatever they hold."""
        made = (row.file for row in list(self.dags.values()) if row.bundle == bundle and row.is_active)
        failed = (p.file for p in list(self.problems.values()) if p.bundle == bundle)
        return frozenset((*made, *failed))

    def has_released_ids(self, bundle: str, parsed: Iterable[ParsedFile]) -> bool:
        """One of these files has an error because an id of it belonged to another file, which has released it since."""
        failed = {p.file for p in list(self.problems.values()) if p.bundle == bundle}

        def is_free(dag_id: str, file: str) -> bool:
            row = self.dags.get(dag_id)
            if row is None or (row.bundle, row.file) == (bundle, file):
                return True
            return not row.is_active and row.deactivated_by is None

        return any(one.file in failed and all(is_free(dag_id, one.file) for dag_id in one.dag_ids) for one in parsed)

    def submit(self, submission: Submission, at: datetime, pools: Collection[str] | None = None) -> SubmissionResult:
        """`pools`: those that there are; None: not known, so that nothing is said of them."""
        rows, result = self._result(submission, at, pools)
        for row in rows:
            self.put(row)
        return result

    def dry_run(self, submission: Submission, at: datetime, pools: Collection[str] | None = None) -> SubmissionResult:
        """What `submit` would do; nothing is changed."""
        return self._result(submission, at, pools)[1]

    def deactivate_dag(self, dag_id: str, *, by: str, at: datetime) -> DagRow:
        """Until it has new content, or its file is parsed on request. Its runs continue."""
        self.put(self._row(dag_id).evolve(is_active=False, deactivated_by=by, updated_at=at))
        return self.dags[dag_id]

    def deactivate_subpath(self, bundle: str, subpath: str, *, by: str, at: datetime) -> tuple[str, ...]:
        """Deactivates every active DAG of the files under `subpath`; "" is all of the bundle. Returns their ids. `Refused` when
        no DAG, active or not, comes from there."""
        found = [row for row in self.dags.values() if row.bundle == bundle and subpath in paths_to(row.file)]
        if subpath and not found:
            raise Refused(f"No DAG comes from {subpath!r} of the bundle {bundle!r}")
        dag_ids = sorted(row.dag_id for row in found if row.is_active)
        for dag_id in dag_ids:
            self.deactivate_dag(dag_id, by=by, at=at)
        return tuple(dag_ids)

    def keep_bundles(self, names: Collection[str], at: datetime) -> tuple[str, ...]:
        """Deactivates DAGs, and clears errors, of bundles that are not configured any more; returns the ids of the DAGs."""
        gone = [row for row in self.dags.values() if row.is_active and row.bundle not in names]
        problems = [p for p in self.problems.values() if p.bundle not in names]
        for row in gone:
            self.put(row.evolve(is_active=False, updated_at=at))
        for problem in problems:
            self.put(problem.evolve(is_current=False, last_seen_at=at))
        return tuple(sorted(row.dag_id for row in gone))

    def _result(
        self, submission: Submission, at: datetime, pools: Collection[str] | None
    ) -> tuple[list[Record], SubmissionResult]:
        """The rows that a submission adds or replaces, and what is reported of it."""
        bundle = self.bundles.get(submission.bundle)
        every = (self.dags.values(), self.versions.values(), self.problems.values())
        rows = changes_for(submission, *every, at, bundle)
        problems = {p.file: p for p in self.problems.values() if p.bundle == submission.bundle}
        problems.update({row.file: row for row in rows if isinstance(row, ImportProblem)})
        failed = {failure.file for failure in submission.failed}
        changes = tuple(self._change(row) for row in rows if isinstance(row, DagRow))
        changed = {change.dag_id for change in changes}  # a bundle is parsed all the time
        gone: list[Record] = []
        if submission.on_request and not submission.deactivates:
            gone = changes_for(replace(submission, deactivates=True), *every, at, bundle)
        return rows, SubmissionResult(
            bundle=submission.bundle,
            changes=changes,
            dags=sum(len(parsed.dag_ids) for parsed in submission.parsed),
            files=len(submission.parsed) + len(submission.failed) if submission.readable else 0,
            errors=tuple(
                problem
                for file, problem in sorted(problems.items())
                if problem.is_current and (file in failed or submission.covers_file(file))
            ),
            commit_id=submission.commit_id,
            unknown_pools=tuple(
                UnknownPool(dag_id, pool, tasks)
                for parsed in submission.parsed
                for dag_id, text in zip(parsed.dag_ids, parsed.definitions, strict=True)
                if dag_id in changed or submission.on_request
                for pool, tasks in DagSpec.from_json(text).unknown_pools(pools or ()).items()
            ),
            still_active=tuple(sorted(row.dag_id for row in gone if isinstance(row, DagRow) and not row.is_active)),
            airflow_files=submission.airflow_files,
        )

    def _change(self, now: DagRow) -> DagChange:
        before, what = self.dags.get(now.dag_id), "changed"
        if not now.is_active:
            what = "deactivated"
        elif before is None:
            what = "new"
        elif not before.is_active:
            what = "back"
        elif (before.bundle, before.file) != (now.bundle, now.file):
            what = "moved"
        return DagChange(now.dag_id, now.file, what, now.current_version)
