"""A bundle as its parser uses it: fetches its files, lists what they are, keeps them, imports some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from backfill_manager.dags.bundles import files
from backfill_manager.dags.bundles.archive import ArchiveSource
from backfill_manager.dags.bundles.git_repository import GitSource
from backfill_manager.dags.bundles.manifest import MANIFEST, with_manifest
from backfill_manager.dags.bundles.snapshot import Snapshot, take
from backfill_manager.dags.bundles.source import BundleSource, FolderSource
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.errors import InvalidConfig, nearest
from backfill_manager.settings import BundleSettings, LimitSettings, RawSettings
from backfill_manager.yaml_reader import Loc


class ParserOptions(BaseModel):
    """Base of a parser's `Options`, a pydantic model. An unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class RawOptions:
    """A bundle's options as written: its manifest's under those of its configuration. `places`: the manifest's lines."""

    values: Mapping[str, Any]
    configured: Mapping[str, Any]
    places: Mapping[Loc, str]
    bundle: str

    def checked(self, model: type[ParserOptions], parser: str) -> ParserOptions:
        """As the parser's model. `InvalidConfig` has a line with the place of each thing that is wrong."""
        where = f"bundle {self.bundle!r}"
        raw = RawSettings({"options": dict(self.values)}, {(): where, **self.places})
        for key in self.configured:
            raw.places = {at: place for at, place in raw.places.items() if at[:2] != ("options", key)}
            raw.places["options", key] = where
        if self.values and not model.model_fields:
            place = raw.place(("options", next(iter(self.values))))
            raise InvalidConfig(f"{place}: options must be left out: the parser {parser!r} has none")
        holder = create_model("Holder", options=(model, ...))
        options: ParserOptions = raw.validate(holder).options  # type: ignore[attr-defined]
        return options


@dataclass(frozen=True)
class Fetched:
    """A bundle's files as they are now; `settings` are the manager's, with what its manifest adds."""

    root: Path
    content: files.BundleContent
    settings: BundleSettings
    commit_id: str | None


class ParserChanged(Exception):
    """The bundle's manifest names another parser than the one that fetched it."""


class BundleState:
    def __init__(self, settings: BundleSettings, *, snapshots: Path, limits: LimitSettings | None = None) -> None:
        """`snapshots` is the folder that keeps files by content; clones and unpacked archives lie beside them."""
        self.settings, self.name = settings, settings.name
        # Defaults of its DAGs.
        self.limits: dict[str, int] = (limits or LimitSettings()).model_dump(exclude={"batch_target", "wait_interval"})
        self.parser = settings.parser  # by name; the manifest's when that has been read
        self.missing_folders: tuple[str, ...] = ()  # when it was last fetched, of those that `directories` names
        self.missing_folder: FailedFile | None = None  # what is said of the first of them
        self.options = ParserOptions()  # of the parser, from configuration and manifest
        self._snapshots = snapshots
        self.raw_options = RawOptions(settings.options, settings.options, {}, settings.name)
        self._parser_in_use: str | None = None  # the parser that reads it, once there is one
        self._options_model: type[ParserOptions] = ParserOptions
        self._fingerprints = files.FileFingerprints()
        self._source = source_of(settings, snapshots / "fetched", self._fingerprints.dag_files)

    def use_parser(self, dag_files: files.DagFiles, options: type[ParserOptions]) -> None:
        """From now on the parser that `parser` names reads it: `dag_files` are part of the bundle, `options` is the model of
        its options. `InvalidConfig` when those that are set don't fit."""
        self.options = self.raw_options.checked(options, self.parser)
        self._parser_in_use, self._options_model = self.parser, options
        if dag_files != self._fingerprints.dag_files:
            self._fingerprints = files.FileFingerprints(dag_files=dag_files)
            self._source = source_of(self.settings, self._snapshots / "fetched", dag_files)

    def fetch(self) -> Fetched:
        """`InvalidInput` when it can't be fetched, `InvalidConfig` when its manifest is wrong."""
        origin = self._source.fetch()
        settings, places = with_manifest(self.settings, origin.root)
        self.parser = settings.parser
        self.raw_options = RawOptions(settings.options, self.settings.options, places, self.name)
        if self._parser_in_use is not None:
            if self.parser != self._parser_in_use:
                raise ParserChanged(self.parser)
            self.options = self.raw_options.checked(self._options_model, self.parser)
        content = files.read_bundle(origin.root, without=self._snapshots, fingerprints=self._fingerprints)
        missing = [at for at, one in enumerate(settings.directories) if not (origin.root / one.path).exists()]
        self.missing_folders = tuple(settings.directories[at].path for at in missing)
        self.missing_folder = self._missing_folder(settings, places, missing[0], content) if missing else None
        return Fetched(origin.root, content, settings, origin.commit_id)

    def _missing_folder(
        self, settings: BundleSettings, places: Mapping[Loc, str], at: int, content: files.BundleContent
    ) -> FailedFile:
        path = settings.directories[at].path
        folders = {str(parent) for file in content.files for parent in PurePath(file).parents}
        message = f"directories[{at}].path: there is no folder {path!r} in the bundle{nearest(path, folders, n=1)}"
        if "directories" in self.settings.model_fields_set:
            return FailedFile(".", None, f"bundle {self.name!r}: {message}")
        return FailedFile(MANIFEST, None, f"{places.get(('directories', at, 'path'), MANIFEST)}: {message}")

    def take_snapshot(self, fetched: Fetched) -> Snapshot:
        """Keeps its files. The snapshot's content is what counts: files may have changed meanwhile."""
        return take(fetched.root, self._snapshots, content=fetched.content, fingerprints=self._fingerprints)

    def snapshot_content(self, content_hash: str) -> files.BundleContent | None:
        """What the snapshot of that content holds; None when there is none any more."""
        folder = self._snapshots.absolute() / content_hash
        return files.read_snapshot(folder) if content_hash and folder.is_dir() else None


def source_of(settings: BundleSettings, cache: Path, dag_files: files.DagFiles = files.PYTHON_AND_YAML) -> BundleSource:
    """`cache` is for clones and unpacked archives; it need not exist yet. `dag_files` belong to it beside the usual files."""
    if settings.git is not None:
        return GitSource(settings.git, settings.ref, settings.path, cache=cache, dag_files=dag_files)
    path = Path(settings.path)
    if path.suffix.lower() in {".zip", ".whl"}:
        return ArchiveSource(path, cache=cache, dag_files=dag_files)
    return FolderSource(path)
