"""A release after this one: a copy of the package with another version, and, if wanted, one more column in the state."""

from __future__ import annotations

import shutil
from pathlib import Path

import backfill_manager
from backfill_manager.model.records import SCHEMA_VERSION

VERSION = "99.0.0"


def make_next_release(folder: Path, *, changes_state: bool) -> dict[str, str]:
    """What the environment of a process needs for it to run that release."""
    package = folder / "backfill_manager"
    shutil.copytree(Path(backfill_manager.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    _replace(package / "__init__.py", f'__version__ = "{backfill_manager.__version__}"', f'__version__ = "{VERSION}"')
    if changes_state:
        records = package / "model" / "records.py"
        _replace(records, f"SCHEMA_VERSION: Final = {SCHEMA_VERSION}", f"SCHEMA_VERSION: Final = {SCHEMA_VERSION + 1}")
        column = "    batch_target: float | None = None"
        _replace(records, column, f"    of_next_release: str | None = None\n{column}")
    return {"PYTHONPATH": str(folder)}


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))
