"""A bundle as its parser sees it: bring its files here, see what they are, read some of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backfill_manager.dags.bundles.files import BundleContent, Stamps, read_bundle
from backfill_manager.dags.bundles.manifest import with_manifest
from backfill_manager.dags.bundles.snapshot import take
from backfill_manager.dags.bundles.source import source_of
from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import DagLoader, ParsedFile
from backfill_manager.settings import BundleSettings, LimitSettings


@dataclass(frozen=True)
class Fetched:
    """A bundle's files as they are now; `settings` are the manager's, with what its manifest adds."""

    root: Path
    content: BundleContent
    settings: BundleSettings
    commit_id: str | None


class Bundle:
    def __init__(self, settings: BundleSettings, *, snapshots: Path, limits: LimitSettings | None = None) -> None:
        """`snapshots` is the folder that keeps files by content; clones and unpacked archives lie beside them."""
        self.settings = settings
        self.parser = settings.parser  # by name; as the manifest says when that has been read
        self._snapshots, self._limits = snapshots, (limits or LimitSettings()).model_dump()
        self._source = source_of(settings, cache=snapshots / "fetched")
        self._stamps = Stamps()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def place(self) -> str:
        """Where it comes from, for people."""
        return self.settings.place

    def fetch(self) -> Fetched:
        """`InvalidInput` when it can't be had, `InvalidConfig` when its manifest is wrong."""
        came = self._source.fetch()
        content = read_bundle(came.root, without=self._snapshots, stamps=self._stamps)
        settings = with_manifest(self.settings, came.root)
        self.parser = settings.parser
        return Fetched(came.root, content, settings, came.commit_id)

    def keep(self, fetched: Fetched) -> tuple[str, BundleContent]:
        """Have its files kept; returns the snapshot's folder and what is in it (files may have changed meanwhile)."""
        snapshot = take(fetched.root, self._snapshots, content=fetched.content, stamps=self._stamps)
        return str(snapshot.path), snapshot.content

    def load(
        self, loader: DagLoader, snapshot: str, files: Iterable[str], settings: BundleSettings
    ) -> list[ParsedFile | FailedFile]:
        """Execute files of a snapshot, each in a process of its own."""
        return loader.load(
            Path(snapshot),
            list(files),
            import_timeout=settings.import_timeout,
            import_memory_mb=settings.import_memory,
            limits=self._limits,
        )
