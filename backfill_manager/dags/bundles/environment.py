"""The interpreter of a bundle with packages of its own: one that its settings name, or one of an environment made for it.

    <cache>/environments/<hash>/            a virtual environment (make_environment.py); the hash is of what it is made of
    <cache>/environments/<hash>/complete    written last: without it the environment was not finished, and is made again
    <cache>/environments/<hash>.lock        held by the process that makes it

`complete` is touched whenever the bundle is read: an environment that no version of a DAG needs any more can be removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Final

from backfill_manager import __version__
from backfill_manager.dags.bundles.file_lock import locked
from backfill_manager.dags.bundles.make_environment import (
    Requirements,
    constraints,
    folder_of,
    has_moved,
    make,
    python_of,
)
from backfill_manager.errors import InvalidConfig, InvalidInput, StateError
from backfill_manager.model.records import DagVersion
from backfill_manager.processes.interpreter import check_interpreter
from backfill_manager.settings import BundleSettings, RawSettings, Settings
from backfill_manager.user_cache import cache_folder

COMPLETE: Final = "complete"
FOLDER: Final = "environments"
_INCLUDES: Final = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
_LOCAL: Final = re.compile(r"\s*(?:(?:-e|--editable)[\s=]*)?(?:[\w.-]+\s*@\s*)?(?:file:)?(?!//)([^\s#;\[-][^\s#;\[]*)")


def interpreter_of(settings: BundleSettings, root: Path) -> str | None:
    """The interpreter for the files of the bundle in `root` (a snapshot) and for their tasks; None is the manager's own.
    `InvalidInput` has one line when it can't be had or does not fit. May take minutes, the first time."""
    if settings.python is not None:
        python = os.path.abspath(settings.python)  # links stay: that of an environment is what makes it one
        check_interpreter(python)
        return python
    if settings.requirements is None:
        return None
    requirements = read_requirements(settings.requirements, root)
    place = environments_folder() / _hash_of(requirements)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(Path(f"{place}.lock")):
            if not _is_usable(place):
                make(place, requirements)
            (place / COMPLETE).touch()
    except OSError as error:
        raise InvalidInput(f"its environment {place} can't be made: {error.strerror}") from None
    check_interpreter(python_of(place))
    return python_of(place)


def interpreter_of_version(version: DagVersion) -> str | None:
    """Where the tasks of a version run; None is the manager's own. `StateError` when the interpreter is gone."""
    python = version.python
    made = re.search(rf"^(.*/{FOLDER}/([0-9a-f]{{20}}))/bin/python$", python or "")
    if made is None and (python is None or os.path.exists(python)):
        return python
    if made is not None:  # there, or by this user, where it was made by another or on another machine
        for place in (Path(made[1]), environments_folder() / made[2]):
            if _is_usable(place):
                return python_of(place)
    cure = "Install it there again"
    if made is not None:
        cure = "It is made again when the bundle is parsed with the same requirements (`bfm bundles parse`)"
    raise StateError(
        f"The interpreter of DAG {version.dag_id!r} version {version.version} is gone: there is no {python}. "
        f"{cure}; or clear the run with the latest version."
    )


def environments_folder() -> Path:
    return (cache_folder() / FOLDER).absolute()


def check_environments(settings: Settings, raw: RawSettings) -> None:
    """`InvalidConfig` has a line, with its place, for each interpreter that does not fit and each file of requirements that
    is not there, as far as that can be known without fetching a bundle or making an environment."""
    wrong = []
    for n, bundle in enumerate(settings.bundles):
        key = "python" if bundle.python else "requirements"
        try:
            if bundle.python is not None:
                interpreter_of(bundle, Path())
            elif isinstance(bundle.requirements, str) and bundle.git is None and Path(bundle.path).is_dir():
                read_requirements(bundle.requirements, Path(bundle.path))
        except InvalidInput as error:
            wrong.append(f"{raw.place(('bundles', n, key))}: bundles[{n}].{key}: {error}")
    if wrong:
        raise InvalidConfig("\n".join(wrong))


def read_requirements(requirements: str | list[str], root: Path) -> Requirements:
    if not isinstance(requirements, str):
        return Requirements("".join(f"{line}\n" for line in requirements))
    included: list[str] = []
    try:
        text = (root / requirements).read_text("utf-8")
        _add_included(text, (root / requirements).parent, included)
        for line in "\n".join((text, *included)).splitlines():
            if (found := _LOCAL.match(line)) and (root / found[1]).exists():  # a package of the bundle's own
                included.append(_content_of(root / found[1]))
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"its requirements {requirements} can't be read: {why}") from None
    return Requirements(text, root, requirements, tuple(included))


def _add_included(text: str, folder: Path, included: list[str]) -> None:
    """The files that it names with `-r` and `-c`, which decide as well; an address is fetched by the installer alone."""
    for name in (found[1] for line in text.splitlines() if (found := _INCLUDES.match(line)) and "://" not in line):
        more = (folder / name).read_text("utf-8")
        if more not in included:
            included.append(more)
            _add_included(more, (folder / name).parent, included)


def _content_of(path: Path) -> str:
    """A digest of the file, or of all files of the folder with their names."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    named = [(str(one.relative_to(path)), hashlib.sha256(one.read_bytes()).hexdigest()) for one in files]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def _hash_of(requirements: Requirements) -> str:
    """Of all that the environment is made of: for another Python, another PySpark or another installation of this package it is
    another one. The same for every process of an installation, however that was started."""
    here = [__version__, folder_of("backfill_manager"), sys.version, sys.prefix, sys.base_prefix]
    made_of = [requirements.text, requirements.included, constraints(), here]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:20]


def _is_usable(place: Path) -> bool:
    return os.path.exists(place / COMPLETE) and not has_moved(place)
