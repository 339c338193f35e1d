"""Imports modules of a bundle so that only that bundle sees them.

Two versions of a DAG may run at the same time, each with a `helpers.py` of its own. Python has one `sys.modules`, so
each bundle folder (a snapshot) gets a package of its own there, `bfm_bundle_<n>`, and its files are modules of that
package: `bfm_bundle_3.helpers`. Code of the bundle writes `import helpers` all the same: its modules get an
`__import__` that looks for the bundle's own names in its package first. So nothing is put on `sys.path`, nothing is
swapped in `sys.modules`, no lock is held while user code runs, and an import inside a task, hours later, in any
thread, finds the right version too.

What the bundle offers comes before what is installed; the standard library and `backfill_manager` come before the
bundle. Only `import` statements are seen: `importlib.import_module("helpers")` knows nothing of bundles.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from backfill_manager.dags.authoring import Dag, collecting
from backfill_manager.dags.bundles.files import YAML_DAGS

PACKAGE: Final = "bfm_bundle_"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ImportScope:
    """A folder of Python files that has been given a package. YAML files find their functions there."""

    root: Path
    package: ModuleType
    names: frozenset[str]  # what `import x` finds in it
    unusual_files: Mapping[str, Path]  # modules whose file name is no Python name
    dags_by_module: dict[str, list[Dag]]  # what each module's top level made, by its name; each YAML file, by its path

    def dags_of(self, file: str) -> list[Dag]:
        """The DAGs of `file` (a path within the bundle), which is executed unless it was before. What it raises comes out."""
        if not file.endswith(YAML_DAGS):
            name = self.module_name(file)
            importlib.import_module(name)
        elif (name := file) not in self.dags_by_module:
            from backfill_manager.dags.yaml.reader import dags_of_yaml

            self.dags_by_module[name] = dags_of_yaml(self.root / name, self.root, self.import_module)
        return self.dags_by_module[name]

    def import_module(self, name: str) -> ModuleType:
        """What `import name` finds in the bundle. `ModuleNotFoundError` for what it does not offer."""
        if name.partition(".")[0] not in self.names:
            raise ModuleNotFoundError(f"No module named {name!r} in the bundle", name=name)
        module: ModuleType = _importer(self)(name, fromlist=("",))
        return module

    def module_name(self, file: str) -> str:
        name = ".".join(Path(file).with_suffix("").parts) if _is_usual(file) else _unusual_name(file)
        return f"{self.package.__name__}.{name}"

    def modules(self) -> tuple[ModuleType, ...]:
        """The package, and every module of it that has been imported up to now."""
        inside = self.package.__name__ + "."
        return (self.package, *(module for name, module in list(sys.modules.items()) if name.startswith(inside)))

    def close(self) -> None:
        """Removes its modules from `sys.modules`. Functions that are held elsewhere keep running, but can't import any more."""
        for module in self.modules():
            sys.modules.pop(module.__name__, None)
        _scopes.pop(self.package.__name__, None)


def open_scope(root: Path) -> ImportScope:
    """Gives the folder a package. Each call gives another one, so that an edited file is imported again."""
    importlib.invalidate_caches()
    package = ModuleType(f"{PACKAGE}{next(_numbers)}", f"The files of {root}.")
    package.__path__ = [str(root)]
    package.__file__ = str(root / "__init__.py")  # for tools that look up which modules belong to a folder
    names = _names(root) - sys.stdlib_module_names - {"backfill_manager"}
    files = {str(path.relative_to(root)): path for path in root.rglob("*.py")}
    unusual = {f"{package.__name__}.{_unusual_name(f)}": path for f, path in files.items() if not _is_usual(f)}
    bundle = ImportScope(root, package, names, unusual, {})
    _scopes[package.__name__] = bundle
    sys.modules[package.__name__] = package
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return bundle


_scopes: dict[str, ImportScope] = {}


def _names(root: Path) -> frozenset[str]:
    files = {path.stem for path in root.glob("*.py")}
    folders = {path.name for path in root.iterdir() if path.is_dir() and path.name.isidentifier()}
    return frozenset(files | {name for name in folders if any((root / name).rglob("*.py"))})


def _is_usual(file: str) -> bool:
    return all(part.isidentifier() for part in Path(file).with_suffix("").parts)


def _unusual_name(file: str) -> str:
    """A Python name for `2024/my-dag.v2.py` that no other file of the bundle has."""
    return "file_" + re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", file.removesuffix(".py"))


class _Loader(SourceFileLoader):
    """Compiles the source (no `__pycache__` in snapshots, no stale byte code), gives the module its `__import__`."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        bundle = _scopes[module.__name__.partition(".")[0]]
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importer(bundle)}
        with collecting(bundle.root, Path(self.path)) as collection:
            super().exec_module(module)
        bundle.dags_by_module[module.__name__] = collection.dags

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a module that travels by value does not take its loader along


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE):
            return None
        bundle = _scopes.get(fullname.partition(".")[0])
        if bundle is not None and fullname in bundle.unusual_files:
            file = bundle.unusual_files[fullname]
            return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _importer(bundle: ImportScope) -> Any:
    package = bundle.package.__name__

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
        top = name.partition(".")[0]
        if level or top not in bundle.names:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        try:
            imported = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or ("",), 0)
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith(f"{package}."):
                inside = error.name.removeprefix(f"{package}.")
                raise ModuleNotFoundError(f"No module named {inside!r} in the bundle", name=inside) from None
            raise
        return imported if fromlist else sys.modules[f"{package}.{top}"]

    return import_
