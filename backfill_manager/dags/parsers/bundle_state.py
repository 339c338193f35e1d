"""A bundle as its parser sees it: bring its files here, see what they are, read some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill_manager.dags.bundles.files import (
    ALL_FILES,
    PYTHON_AND_YAML,
    BundleContent,
    DagFiles,
    FileFingerprints,
    read_bundle,
)
from backfill_manager.dags.bundles.manifest import read_manifest, with_manifest
from backfill_manager.dags.bundles.snapshot import take
from backfill_manager.dags.bundles.source import source_of
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import DagLoader, ParsedFile
from backfill_manager.dags.parsers.options import ParserOptions, SaidOptions
from backfill_manager.settings import BundleSettings, LimitSettings


@dataclass(frozen=True)
class Fetched:
    """A bundle's files as they are now; `settings` are the manager's, with what its manifest adds."""

    root: Path
    content: BundleContent
    settings: BundleSettings
    commit_id: str | None


class AnotherParser(Exception):
    """The bundle's manifest names another parser than the one that fetched it: that one is to read the files."""


class BundleState:
    def __init__(self, settings: BundleSettings, *, snapshots: Path, limits: LimitSettings | None = None) -> None:
        """`snapshots` is the folder that keeps files by content; clones and unpacked archives lie beside them."""
        self.settings = settings
        self.parser = settings.parser  # by name; as the manifest says when that has been read
        self.options = ParserOptions()  # of the parser, as configuration and manifest say
        self._snapshots, self._limits = snapshots, (limits or LimitSettings()).model_dump()
        self._said_options = SaidOptions(settings.options, settings.options, {}, settings.name)
        self._read_by: str | None = None  # the parser that reads it, once there is one
        self._options_model: type[ParserOptions] = ParserOptions
        self._dag_files = PYTHON_AND_YAML
        self._source = source_of(settings, cache=snapshots / "fetched")
        self._stamps = FileFingerprints()

    @property
    def said_options(self) -> Mapping[str, Any]:
        """The options as they were written, for a process that checks them again."""
        return self._said_options.values

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def place(self) -> str:
        """Where it comes from, for people."""
        return self.settings.place

    def read_by(self, dag_files: DagFiles, options: type[ParserOptions]) -> None:
        """From now on the parser that `parser` names reads it: `dag_files` are part of the bundle, `options` is what that
        parser may be told. `InvalidConfig` when it is told something else."""
        self.options = self._said_options.checked(options, self.parser)
        self._read_by, self._options_model = self.parser, options
        if dag_files != self._dag_files:
            self._dag_files, self._stamps = dag_files, FileFingerprints()
            self._source = source_of(self.settings, cache=self._snapshots / "fetched", dag_files=dag_files)

    def fetch(self) -> Fetched:
        """`InvalidInput` when it can't be had, `InvalidConfig` when its manifest is wrong."""
        came = self._source.fetch()
        manifest = read_manifest(self.settings, came.root)
        settings = with_manifest(self.settings, manifest)
        self.parser = settings.parser
        self._said_options = SaidOptions(
            settings.options, self.settings.options, manifest.raw.places if manifest else {}, self.name
        )
        if self._read_by is not None:
            if self.parser != self._read_by:
                raise AnotherParser(self.parser)
            self.options = self._said_options.checked(self._options_model, self.parser)
        content = read_bundle(came.root, without=self._snapshots, stamps=self._stamps, dag_files=self._dag_files)
        return Fetched(came.root, content, settings, came.commit_id)

    def keep(self, fetched: Fetched) -> tuple[str, BundleContent]:
        """Have its files kept; returns the snapshot's folder and what is in it (files may have changed meanwhile)."""
        snapshot = take(
            fetched.root, self._snapshots, content=fetched.content, stamps=self._stamps, dag_files=self._dag_files
        )
        return str(snapshot.path), snapshot.content

    def kept(self, content_hash: str) -> BundleContent | None:
        """What the snapshot of that content holds; None when there is none any more."""
        folder = self._snapshots.absolute() / content_hash
        return read_bundle(folder, dag_files=ALL_FILES) if content_hash and folder.is_dir() else None

    def load(
        self,
        loader: DagLoader,
        snapshot: str,
        files: Iterable[str],
        settings: BundleSettings,
        *,
        reader: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> list[ParsedFile | FailedFile]:
        """Execute files of a snapshot, each in a process of its own. `reader` is `module:Class` of a parser that makes the
        DAGs of a file itself, with its `options`."""
        return loader.load(
            Path(snapshot),
            list(files),
            import_timeout=settings.import_timeout,
            import_memory_mb=settings.import_memory,
            limits=self._limits,
            reader=reader,
            options=options,
        )
