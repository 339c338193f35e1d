"""`convert`: the files of a place as drafts, each with the name that it gets; `save` writes them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from backfill_manager.errors import InvalidInput
from backfill_manager.importers.draft import Draft
from backfill_manager.importers.writer import write

MAX_FILE_SIZE: Final = 5 << 20
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "target", "dbt_packages"})
Translate = Callable[[str, str], Draft]


@dataclass(frozen=True)
class Converted:
    """A file, named as it was found. `target`: of its draft, in the folder that drafts go to."""

    file: str
    target: str
    draft: Draft | None = None
    text: str = ""
    error: str | None = None  # why there is no draft

    @property
    def has_dags(self) -> bool:
        return self.draft is not None and bool(self.draft.dags)


def convert(place: Path, translate: Translate) -> Iterator[Converted]:
    """A file, or every `.py` file below a folder. What is no Python is an error of its own."""
    if not place.exists():
        raise InvalidInput(f"{place} does not exist.")
    for path in [place] if place.is_file() else _python_files(place):
        name = path.name if place.is_file() else path.relative_to(place).as_posix()
        shown = str(place) if place.is_file() else name
        try:
            if path.stat().st_size > MAX_FILE_SIZE:
                raise ValueError(f"it has more than {MAX_FILE_SIZE >> 20} MB")
            text = path.read_text(encoding="utf-8-sig")
            ast.parse(text)
        except SyntaxError as error:
            yield Converted(
                shown, name, error=f"line {error.lineno}: {error.msg}: it is no Python that {_version()} reads"
            )
        except (OSError, ValueError, RecursionError) as error:
            yield Converted(shown, name, error=f"it can't be read: {error}")
        else:
            yield _converted(text, shown, name, translate)


def _converted(text: str, shown: str, name: str, translate: Translate) -> Converted:
    try:
        draft = translate(text, name)
        return Converted(shown, name, draft, write(draft))
    except InvalidInput as error:
        return Converted(shown, name, error=str(error).rstrip("."))
    except Exception as error:  # noqa: BLE001 - of hundreds of files, one that meets a bug of ours must not hide the others
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Converted(shown, name, error=f"a bug of `bfm import` ({what}): import it by hand")


def text_within(place: Path, file: str, name: str) -> str | None:
    """The text of a file that `file`, converted from this place, names: beside it, or else the only one so named below."""
    root = place.parent if place.is_file() else place
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute() or set("*?[") & set(name):
        return None
    beside = (root / file).parent / name
    try:
        found = [beside] if beside.is_file() else [*root.rglob(name)]
        is_within = len(found) == 1 and found[0].resolve().is_relative_to(root.resolve())
        if not is_within or found[0].stat().st_size > MAX_FILE_SIZE:
            return None
        return found[0].read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None


def save(converted: Sequence[Converted], folder: Path, *, force: bool) -> list[Path]:
    """Writes the drafts that have DAGs, all or none: `InvalidInput` for a file that is there, unless `force`."""
    texts = {folder / one.target: one.text for one in converted if one.has_dags}
    if not force and (there := [str(path) for path in texts if path.exists()]):
        raise InvalidInput(f"{', '.join(there)}: there already. --force writes over what is there.")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{error.filename or path}: {error.strerror}.") from None
    return list(texts)


def _python_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not any(part in _LEFT_OUT or part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _version() -> str:
    return f"Python {sys.version_info.major}.{sys.version_info.minor}"
