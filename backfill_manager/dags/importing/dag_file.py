"""A file of a bundle in a format of a parser's own, as the parser's `read` is given it, in a process of its own.

`read` makes DAGs as a Python file does, with `dag`, `sql` and `task`: all that it makes are the file's. What it raises is
the file's import error; `at` and `wrong` tell the line of the file that is to blame.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any, NoReturn

from backfill_manager.dags.authoring import Dag, collecting
from backfill_manager.dags.bundles.files import YAML_DAGS
from backfill_manager.dags.importing.bundle_path import Bundle
from backfill_manager.dags.yaml.text import at_line, fail_at, text_of
from backfill_manager.errors import InvalidDag


@dataclass(frozen=True)
class DagFile:
    """`name` is the path within the bundle, with `/`; `path` is where the file can be read now, `root` the bundle's folder."""

    name: str
    path: Path
    root: Path
    import_module: Callable[[str], ModuleType]  # a module of the bundle, by its name there
    _usual: Callable[[], list[Dag]]

    def text(self) -> str:
        """Its content. `InvalidDag`, with the line, for what is not UTF-8."""
        return text_of(self.path)

    def at(self, line: int) -> _AtLine:
        """`with file.at(3):` whatever is raised inside is an error of line 3."""
        return _AtLine(self.path, line)

    def wrong(self, line: int, message: str) -> NoReturn:
        """Raise `InvalidDag`: the file is wrong in that line."""
        fail_at(self.path, line, message)

    def function(self, reference: str) -> FunctionType:
        """The function that `module:function` names in the bundle, for `task(...)`. `InvalidDag` when there is none."""
        module, _, name = reference.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), name)):
            raise InvalidDag(f"must be module:function, such as helpers:clean, not {reference!r}")
        from backfill_manager.dags.yaml.reader import find_function  # costs more than a light command

        return find_function(reference, self.import_module)

    def as_usual(self) -> list[Dag]:
        """The DAGs of a Python or `*.dag.yaml` file, for a parser that reads those too."""
        if not self.name.endswith((".py", *YAML_DAGS)):
            raise InvalidDag("is neither Python nor *.dag.yaml; the parser of its bundle has no `read` for it")
        return self._usual()


@dataclass(frozen=True)
class _AtLine:
    path: Path
    line: int

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            at_line(self.path, self.line, partial(_raise, error))


def _raise(error: BaseException) -> NoReturn:
    raise error


def load_dags(reader: str, bundle: Bundle, file: str, options: Mapping[str, Any]) -> list[Dag]:
    """The DAGs of `file`, by the parser class `reader` (`module:Class`; "" is Python and YAML). What it raises comes out."""
    if not reader:
        return bundle.dags_of(file)
    parser = _class_named(reader)
    path = bundle.root / file
    given = DagFile(file, path, bundle.root, bundle.import_module, partial(bundle.dags_of, file))
    with collecting(bundle.root, path, is_for_task=bundle.by_value) as collection:
        returned: Any = parser.read(given, parser.Options.model_validate(dict(options)))
        # It may return or yield them too, and need not: all that it makes count.
        is_many = isinstance(returned, Iterable) and not isinstance(returned, str | bytes | Dag)
        others = [] if returned is None else list(returned) if is_many else [returned]
    for dag in others:
        if not isinstance(dag, Dag):
            mistake = f"{reader}.read gave a {type(dag).__name__}; it makes DAGs with `dag` of backfill_manager"
            raise InvalidDag(f"{mistake}, and need not return anything")
    return [*collection.dags, *(dag for dag in others if not any(dag is one for one in collection.dags))]


def _class_named(reader: str) -> Any:
    module, _, name = reader.partition(":")
    try:
        loaded: Any = importlib.import_module(module)
        for part in name.split("."):
            loaded = getattr(loaded, part)
    except (Exception, SystemExit) as error:  # another package may raise anything
        why = f"{type(error).__name__}: {error}"
        raise InvalidDag(f"its parser {reader} can't be imported ({why}); is its package installed here?") from error
    return loaded
