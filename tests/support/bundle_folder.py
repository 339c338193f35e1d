"""A bundle's folder that tests fill."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.dags.versions import Submission
from backfill_manager.settings import BundleSettings, LimitSettings


class BundleFolder:
    def __init__(self, root: Path, snapshots: Path, loader: DagLoader | None = None) -> None:
        self.root, self.snapshots, self._loader = root, snapshots, loader
        root.mkdir()

    def write(self, file: str, text: str) -> Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def write_dag(self, file: str, *dag_ids: str, top: str = "") -> Path:
        """A file with one SQL task in each of its DAGs."""
        dags = "".join(f"@dag({i!r})\ndef _{n}():\n    sql('s', 'SELECT 1')\n" for n, i in enumerate(dag_ids))
        return self.write(file, f"from backfill_manager import dag, sql\n{top}\n{dags}")

    def settings(self, **settings: Any) -> BundleSettings:
        return BundleSettings(name="b", path=str(self.root), **settings)

    def scan(self, *, limits: LimitSettings | None = None, **settings: Any) -> Submission:
        return parse_bundle(self.settings(**settings), snapshots=self.snapshots, limits=limits, loader=self._loader)
