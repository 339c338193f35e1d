"""The store of DAGs against a few lines that say what it should do: files come and go, break and are mended, claim each
other's ids, in two bundles, looked at whole or in part. Plain values only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.versions import Submission
from backfill_manager.errors import Refused
from backfill_manager.model.records import DagVersion, Record

BUNDLES = ("one", "two")
DAG_FILES = ("a.py", "b.py", "sub/c.py", "sub/d.py")  # they look so; what they hold may be otherwise
HELPERS = ("h.py", "sub/q.sql")
IDS = ("p", "q", "r")
PATHS = ("", "sub", "a.py", "sub/c.py")


@dataclass(frozen=True)
class Text:
    """What stands in a file: the ids that it makes (of a helper, none), or a mistake. `edit` is the rest of it."""

    ids: tuple[str, ...] = ()
    owner: str = ""  # goes into the definitions, `edit` into the code only
    edit: int = 0
    imports: str = ""
    is_broken: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()


Place = tuple[str, str]  # bundle and file
Files = dict[str, Text]


@dataclass
class Expected:
    """A DAG as it should stand. `content`: of its newest version."""

    place: Place
    content: object
    version: int = 1
    is_active: bool = True
    by_person: bool = False


@dataclass
class Model:
    dags: dict[str, Expected] = field(default_factory=dict)
    errors: set[Place] = field(default_factory=set)
    makes_none: set[Place] = field(default_factory=set)  # files that look like DAG files, and were read

    def take(self, it: Submission, files: Files) -> None:
        covered = {file for file in files if it.covers_file(file)}
        read = {file for file in covered if file in DAG_FILES}
        good = {file: files[file] for file in read if not files[file].is_broken}
        self.makes_none -= {(it.bundle, f) for _, f in self.makes_none if f not in files or f in read}
        self.makes_none |= {(it.bundle, file) for file, text in good.items() if not text.ids}

        holders = self._holders(it, files, covered, good)
        accepted = {}
        for file in sorted(good, key=lambda file: ((it.bundle, file) not in holders.values(), file)):
            place = (it.bundle, file)
            if all(holders.get(dag_id, place) == place for dag_id in good[file].ids):
                accepted[file] = good[file]
                holders |= dict.fromkeys(good[file].ids, place)
            elif not it.keep_last_good:
                holders = {dag_id: holder for dag_id, holder in holders.items() if holder != place}
        for file, text in accepted.items():
            for dag_id in text.ids:
                self._made(dag_id, (it.bundle, file), self._content(it.bundle, files, file), it.on_request)
        made = {dag_id for text in accepted.values() for dag_id in text.ids}
        wrong = {file for file in read if file not in accepted}
        for dag_id, dag in self.dags.items():
            bundle, file = dag.place
            if bundle == it.bundle and it.covers_file(file) and dag_id not in made and it.deactivates:
                dag.is_active &= file in wrong and it.keep_last_good
        about = {(bundle, file) for bundle, file in self.errors if bundle == it.bundle and it.covers_file(file)}
        self.errors = self.errors - about - {(it.bundle, ".")} | {(it.bundle, file) for file in wrong}

    def _holders(self, it: Submission, files: Files, covered: set[str], good: Files) -> dict[str, Place]:
        def holds(dag_id: str, dag: Expected) -> bool:
            bundle, file = dag.place
            if bundle != it.bundle:
                return dag.is_active
            if file not in files or not (dag.is_active or dag.by_person):
                return False
            return (
                file not in covered or dag_id in good.get(file, Text()).ids or (file not in good and it.keep_last_good)
            )

        return {dag_id: dag.place for dag_id, dag in self.dags.items() if holds(dag_id, dag)}

    def _made(self, dag_id: str, place: Place, content: object, covered: bool) -> None:
        dag = self.dags.get(dag_id)
        if dag is None:
            self.dags[dag_id] = Expected(place, content)
        elif dag.content != content:
            self.dags[dag_id] = Expected(place, content, dag.version + 1)
        elif not dag.by_person or covered:
            dag.is_active, dag.by_person = True, False

    def _content(self, bundle: str, files: Files, file: str) -> object:
        """Its own text with what it imports, and everything that makes no DAGs."""
        makers = {name for name in files if name in DAG_FILES and (bundle, name) not in self.makes_none}
        own = {name: files[name] for name in (file, files[file].imports) if name in makers}
        return bundle, file, own, {name: text for name, text in files.items() if name not in makers}


class RecordingShelf(DagCatalog):
    """It remembers what was put there."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Record] = []

    def put(self, row: Record) -> None:
        self.written.append(row)
        super().put(row)


def definition(dag_id: str, file: str, owner: str) -> str:
    return DagSpec(dag_id, (TaskSpec("s", kind="sql", sql="SELECT 1"),), file=file, owner=owner).to_json()


def submission(bundle: str, files: Files, **how: object) -> Submission:
    content = BundleContent(
        {file: text.digest for file, text in files.items()}, tuple(file for file in files if file in DAG_FILES)
    )
    empty = Submission(bundle, f"/{bundle}", "standard", content, snapshot=content.hash, **how)  # type: ignore[arg-type]
    read = {file: text for file, text in files.items() if file in DAG_FILES and empty.covers_file(file)}
    parsed = tuple(
        ParsedFile(
            file, text.ids, tuple(definition(dag_id, file, text.owner) for dag_id in text.ids),
            imported=(text.imports,) if text.imports else (),
        )
        for file, text in read.items() if not text.is_broken
    )  # fmt: skip
    failed = tuple(FailedFile(file, 1, f"mistake {text.edit}") for file, text in read.items() if text.is_broken)
    return Submission(**{**vars(empty), "parsed": parsed, "failed": failed})


bundles = st.sampled_from(BUNDLES)
dag_files = st.sampled_from(DAG_FILES)
texts = st.builds(
    Text,
    ids=st.lists(st.sampled_from(IDS), unique=True, max_size=2).map(tuple),
    owner=st.sampled_from(["", "ada"]),
    edit=st.integers(0, 2),
    imports=st.sampled_from(["", "", *DAG_FILES]),
    is_broken=st.sampled_from([False, False, False, True]),
)


class StoreOfDags(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.catalog, self.model = RecordingShelf(), Model()
        self.store = self.catalog
        self.at = datetime(2024, 1, 1, tzinfo=timezone.utc)
        self.files: dict[str, Files] = {bundle: {} for bundle in BUNDLES}
        self.ever: dict[tuple[str, int], DagVersion] = {}

    # -- people edit ---------------------------------------------------------------------------------------------------
    @rule(bundle=bundles, file=dag_files, text=texts)
    def write(self, bundle: str, file: str, text: Text) -> None:
        self.files[bundle][file] = text

    @rule(bundle=bundles, file=st.sampled_from(HELPERS), edit=st.integers(0, 2))
    def edit_a_helper(self, bundle: str, file: str, edit: int) -> None:
        self.files[bundle][file] = Text(edit=edit)

    @rule(bundle=bundles, file=st.sampled_from(DAG_FILES + HELPERS))
    def delete(self, bundle: str, file: str) -> None:
        self.files[bundle].pop(file, None)

    @rule(whence=bundles, where=bundles, file=dag_files, to=dag_files)
    def move(self, whence: str, where: str, file: str, to: str) -> None:
        if text := self.files[whence].pop(file, None):
            self.files[where][to] = text

    @rule(bundle=bundles, file=dag_files)
    def break_or_mend(self, bundle: str, file: str) -> None:
        if text := self.files[bundle].get(file):
            self.files[bundle][file] = Text(**{**vars(text), "is_broken": not text.is_broken})

    # -- parsers scan --------------------------------------------------------------------------------------------------
    @rule(bundle=bundles, keep=st.sampled_from([True, True, False]))
    def scan(self, bundle: str, keep: bool) -> None:
        self._submit(bundle, keep_last_good=keep)

    @rule(
        bundle=bundles, covers=st.sets(st.sampled_from(PATHS), min_size=1), leaves_out=st.sets(st.sampled_from(PATHS))
    )
    def look_at_a_part(self, bundle: str, covers: set[str], leaves_out: set[str]) -> None:
        self._submit(bundle, covers=tuple(sorted(covers)), leaves_out=tuple(sorted(leaves_out)))

    @rule(bundle=bundles, path=st.sampled_from(PATHS), removed=st.booleans())
    def parse_because_someone_asks(self, bundle: str, path: str, removed: bool) -> None:
        self._submit(bundle, covers=(path,), deactivates=removed, on_request=True)

    @rule(bundle=bundles)
    def look_at_what_can_not_be_had(self, bundle: str) -> None:
        failed = (FailedFile(".", None, "the folder does not exist"),)
        lost = Submission(bundle, f"/{bundle}", "standard", BundleContent({}, ()), failed=failed, readable=False)
        self.store.submit(lost, self._later())
        self.model.errors.add((bundle, "."))

    # -- people deactivate ---------------------------------------------------------------------------------------------
    @rule(dag_id=st.sampled_from(IDS))
    def deactivate_a_dag(self, dag_id: str) -> None:
        if dag_id in self.model.dags:
            self.store.deactivate_dag(dag_id, by="ada", at=self._later())
            self._deactivated(lambda one, _: one == dag_id)

    @rule(bundle=bundles, path=st.sampled_from(PATHS))
    def deactivate_a_path(self, bundle: str, path: str) -> None:
        under = submission(bundle, {}, covers=(path,)).covers_file
        if path and not any(dag.place[0] == bundle and under(dag.place[1]) for dag in self.model.dags.values()):
            with pytest.raises(Refused):
                self.store.deactivate_subpath(bundle, path, by="ada", at=self._later())
            return
        self.store.deactivate_subpath(bundle, path, by="ada", at=self._later())
        self._deactivated(lambda _, dag: dag.is_active and dag.place[0] == bundle and under(dag.place[1]))

    @rule(kept=bundles)
    def configure_one_bundle_only(self, kept: str) -> None:
        self.store.keep_bundles([kept], self._later())
        for dag in self.model.dags.values():
            dag.is_active &= dag.place[0] == kept
        self.model.errors = {(bundle, file) for bundle, file in self.model.errors if bundle == kept}

    # -- what must hold ------------------------------------------------------------------------------------------------
    @invariant()
    def the_state_is_as_the_model_says(self) -> None:
        message = {
            row.dag_id: ((row.bundle, row.file), row.current_version, row.is_active, row.deactivated_by is not None)
            for row in self.catalog.dags.values()
        }
        assert message == {
            dag_id: (dag.place, dag.version, dag.is_active, dag.by_person) for dag_id, dag in self.model.dags.items()
        }
        errors = {(p.bundle, p.file) for p in self.catalog.problems.values() if p.is_current}
        assert errors == self.model.errors

    @invariant()
    def versions_count_up_and_are_never_altered(self) -> None:
        for row in self.catalog.written:
            if isinstance(row, DagVersion):
                assert self.ever.setdefault((row.dag_id, row.version), row) == row
        self.catalog.written.clear()
        assert self.ever == self.catalog.versions
        assert set(self.ever) == {
            (dag_id, n) for dag_id, dag in self.model.dags.items() for n in range(1, dag.version + 1)
        }

    def _submit(self, bundle: str, **how: object) -> None:
        it = submission(bundle, self.files[bundle], **how)
        looked = self.store.dry_run(it, self._later())
        assert self.store.submit(it, self.at) == looked
        self.model.take(it, self.files[bundle])
        written = list(self.catalog.written)
        assert self.store.submit(it, self._later()).changes == ()
        assert self.catalog.written == written  # nothing has changed: nothing is written

    def _deactivated(self, meant: Callable[[str, Expected], bool]) -> None:
        for dag_id, dag in self.model.dags.items():
            if meant(dag_id, dag):
                dag.is_active, dag.by_person = False, True

    def _later(self) -> datetime:
        self.at += timedelta(minutes=1)
        return self.at


TestStoreOfDags = StoreOfDags.TestCase
TestStoreOfDags.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
