"""Exports a state to plain Parquet files and imports it, also into another engine.

    FOLDER/manifest.json          versions, identity, and a checksum of every other file
    FOLDER/tables/TABLE.parquet
    FOLDER/snapshots/...          files of DAG versions

A `.tar` file holds the same. Tables stream through memory in batches. An export is written beside its place and gets its
name when it is complete. As a state, it is readable for its owner only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_manager import __version__
from backfill_manager.clock import Clock, format_instant
from backfill_manager.dags.bundles.snapshot import STORE
from backfill_manager.dags.bundles.source import BEING_MADE, rename_unless_there, scratch_folder
from backfill_manager.errors import InvalidInput, StateError
from backfill_manager.humanise import plural
from backfill_manager.manager.state_identity import COPY, identity_fields
from backfill_manager.model import states as s
from backfill_manager.model.records import NEW_TABLES, SCHEMA_VERSION, TABLES, Manager
from backfill_manager.process_info import manager_id
from backfill_manager.store.base import Store
from backfill_manager.store.table_properties import arrow_schema
from backfill_manager.store.whole_tables import BATCH_ROWS, READING_ORDER, batch_of, records_in

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
TAR: Final = ".tar"
OTHER_ARCHIVES: Final = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z")
REPORT_ROWS: Final = 100_000
Note = Callable[[str], None]


def export_state(store: Store, target: Path, snapshots: Path, now: datetime, note: Note) -> dict[str, Any]:
    """Writes it and returns the manifest; `note` gets how far it is."""
    if target.exists():
        raise InvalidInput(f"{target} exists already; name a new folder or file.")
    if target.suffix.lower() in OTHER_ARCHIVES:
        raise InvalidInput(
            f"{target}: an export is a folder, or a file that ends with {TAR}; name one of these. (Its tables are compressed.)"
        )
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        with _scratch(target.absolute().parent, ".bfm-export-") as scratch:
            folder = scratch / "export"
            manifest = _write(store, folder, snapshots, now, note)
            if target.suffix.lower() == TAR:
                (scratch / "tar").touch(mode=0o600)
                with tarfile.open(scratch / "tar", "w") as archive:
                    archive.add(folder, arcname=".")
                (scratch / "tar").rename(target)
            else:
                folder.rename(target)
    except OSError as error:
        raise InvalidInput(f"{target} can't be written: {error.strerror or error}.") from error
    return manifest


def _write(store: Store, folder: Path, snapshots: Path, now: datetime, note: Note) -> dict[str, Any]:
    folder.mkdir(mode=0o700)
    (folder / "tables").mkdir()
    pinned, tables, lease = store.pin(), dict[str, Any](), store.lease()
    for name in READING_ORDER:
        file = folder / "tables" / f"{name}.parquet"
        rows = 0
        with pq.ParquetWriter(file, arrow_schema(TABLES[name])) as writer:
            for batch in pinned.batches(name):
                writer.write_batch(batch)
                rows = _count(rows, batch, name, note)
        tables[name] = {"rows": rows, "version": pinned.versions.get(name, 0)}
        note(f"{name}: {plural(rows, 'row')}")
    pinned.check()
    if snapshots.is_dir():
        _copy_snapshots(snapshots, folder / "snapshots")
        note("files of DAG versions are copied")
    manifest = {
        "format": FORMAT, "schema_version": SCHEMA_VERSION, "release": __version__, "made_at": format_instant(now),
        "state": store.root, "engine": store.engine, "state_id": lease.state_id if lease else None, "tables": tables,
        "files": {str(file.relative_to(folder)): _checksum(file) for file in _files_in(folder)},
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return manifest


def _copy_snapshots(source: Path, target: Path) -> None:
    """A manager may make snapshots meanwhile, and delete those that no run needs any more."""
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(f"{BEING_MADE}*"))
    except shutil.Error as error:
        file, _, why = error.args[0][0]
        raise StateError(f"{file} can't be copied ({why}). If it was deleted meanwhile, export again.") from error


def import_state(
    store: Store, source: Path, snapshots: Path, note: Note, *, as_copy: Clock | None = None
) -> dict[str, Any]:
    """Makes the state of an export and returns the manifest. Nothing is written before everything has been checked. `as_copy`: it
    is given a new id, with its lease in one commit: a state that there is never has that of the original."""
    if store.exists() and any(store.count(name, [])[()] for name in TABLES):
        raise StateError(f"There is a state at {store.root} already; an import makes a new one. Name another place.")
    if not store.exists() and store.was_begun():  # what is there would be there twice
        raise StateError(
            f"At {store.root} is a part of a state: an import broke off there, or its table manager is lost. "
            "Delete it, or name another place."
        )
    with _opened(source, snapshots.absolute()) as folder:
        manifest = _checked(folder, source)
        note(f"{plural(len(manifest['files']), 'file')} as the manifest says")

        def batches_of(table: str) -> Iterator[pa.RecordBatch]:
            rows = 0
            if NEW_TABLES.get(table, 0) > manifest["schema_version"]:
                return
            terms: list[Manager] = []
            with pq.ParquetFile(folder / "tables" / f"{table}.parquet") as parquet:
                for batch in parquet.iter_batches(BATCH_ROWS):
                    rows = _count(rows, batch, table, note)
                    if table == Manager.TABLE:
                        terms += [row for row in records_in(table, _as_now(table, batch)) if isinstance(row, Manager)]
                    else:
                        yield _as_now(table, batch)
            if terms:  # at once: with the first of them it is a state that can be led
                last = max(terms, key=lambda row: row.term)
                yield batch_of(table, terms if as_copy is None else [*terms, _adopted(store, last, as_copy)])
            note(f"{table}: {plural(rows, 'row')}")

        if (folder / "snapshots").is_dir():
            _take_snapshots(folder / "snapshots", snapshots)
        store.fill(batches_of)
    return manifest


def _take_snapshots(source: Path, target: Path) -> None:
    """Those that are not there yet: one that is is right by its name. Contents that they share are found again by themselves."""
    try:
        if not target.parent.exists():  # usually the state's folder
            target.parent.mkdir(mode=0o700, parents=True)
        target.mkdir(mode=0o700, exist_ok=True)  # one that is there already keeps its mode
        for one in source.iterdir():
            if one.name != STORE and not (target / one.name).exists():
                with scratch_folder(target) as scratch:
                    rename_unless_there(Path(shutil.copytree(one, Path(scratch) / one.name)), target / one.name)
    except OSError as error:
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise StateError(f"The snapshots can't be copied to {target}: {why}.") from error


def _adopted(store: Store, last: Manager, clock: Clock) -> Manager:
    """The row of a term that was given back at once, as `state adopt --as-copy` leaves it."""
    now = clock.now()
    return Manager(
        term=last.term + 1, manager_id=manager_id(clock.new_id()), host=socket.gethostname(), pid=os.getpid(), state=s.STOPPED,
        started_at=now, heartbeat_at=now, ended_at=now, lease_s=last.lease_s, version=__version__,
        **identity_fields(store, last, clock, COPY),
    )  # fmt: skip


def _count(rows: int, batch: pa.RecordBatch, table: str, note: Note) -> int:
    after = rows + int(batch.num_rows)
    if after // REPORT_ROWS > rows // REPORT_ROWS:
        note(f"{table}: {plural(after, 'row')} so far")
    return after


@contextmanager
def _opened(source: Path, target: Path) -> Iterator[Path]:
    """The folder of an export; an archive is unpacked where the state will be: a system's folder for temporary files is often in
    memory, or small."""
    if source.is_dir():
        yield source
        return
    place = next(folder for folder in (target, *target.parents) if folder.is_dir())
    with ExitStack() as held:
        try:
            archive = held.enter_context(tarfile.open(source))
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise InvalidInput(f"{source} can't be read as an export: {error}.") from error
        try:
            scratch = held.enter_context(_scratch(place, ".bfm-import-"))
            archive.extractall(scratch, filter="data")
        except (EOFError, zlib.error, tarfile.TarError) as error:
            raise InvalidInput(f"{source} can't be read as an export: {error}.") from error
        except OSError as error:
            raise StateError(f"{source} can't be unpacked in {place}: {error.strerror or error}.") from error
        yield scratch


@contextmanager
def _scratch(place: Path, prefix: str) -> Iterator[Path]:
    """A folder for its owner only, that is removed at the end; what killed commands have left of theirs, which nobody holds any
    more, is removed before."""
    for left in [folder for folder in place.iterdir() if folder.name.startswith(prefix) and folder.is_dir()]:
        with suppress(OSError), _held(left):
            shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as scratch, _held(scratch):
        yield Path(scratch)


@contextmanager
def _held(folder: Path | str) -> Iterator[None]:
    """`OSError` if another process holds it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _checked(folder: Path, source: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        form, version, files = manifest["format"], manifest["schema_version"], manifest["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{source} is no export of a state: its {MANIFEST} is missing or damaged.") from error
    if form > FORMAT or version > SCHEMA_VERSION:
        raise StateError(
            f"{source} is of state version {version}; this backfill_manager knows {SCHEMA_VERSION}. Use release "
            f"{manifest.get('release')} or a newer one."
        )
    for one in folder.rglob("*"):
        if one.is_symlink() or not (one.is_file() or one.is_dir()):
            raise StateError(f"{source} is not as it was written: {one.relative_to(folder)} is a link or no file.")
    there = {str(file.relative_to(folder)) for file in _files_in(folder)} - {MANIFEST}
    known = {f"tables/{name}.parquet" for name in TABLES if NEW_TABLES.get(name, 0) <= version}
    if apart := sorted((set(files) | known) ^ there):
        what = "new" if apart[0] in there else "missing"
        raise StateError(f"{source} is not as it was written: {apart[0]} is {what}.")
    for name, checksum in files.items():
        if _checksum(folder / name) != checksum:
            raise StateError(f"{source} is not as it was written: the checksum of {name} differs.")
    return manifest


def _as_now(table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """With the columns that were added since, and with nobody leading."""
    schema = arrow_schema(TABLES[table])
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    if table == Manager.TABLE:
        arrays[schema.get_field_index("state")] = pa.array([s.STOPPED] * batch.num_rows, pa.string())
    return pa.record_batch(arrays, schema=schema)


def _files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
