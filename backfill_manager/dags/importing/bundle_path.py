"""Puts a bundle's folder on Python's import path, in a process whose only work is one file or one try of that bundle.

    the standard library ─► the bundle ─► what is installed

From then on the bundle's modules are modules like others: `import helpers` and `importlib.import_module("helpers")` find
them in any thread at any time, and pickles name them `helpers`. A hook of Python's import system for paths inside the
folder knows which module made which DAGs, compiles the source each time (no byte code in a snapshot, no stale one used),
and lets the bundle's folders without an `__init__.py` come before packages that are installed under the same name.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import weakref
from collections.abc import Iterator
from functools import partial
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from backfill_manager.dags.authoring import Dag, collecting
from backfill_manager.dags.bundles.files import YAML_DAGS

# Names that never mean a module of a bundle: Python's and Spark's own code, and ours, import them too.
RESERVED: Final = sys.stdlib_module_names | {"__main__", "backfill_manager", "delta", "py4j", "pyspark"}
_LIBRARY: Final = os.path.dirname(os.__file__)
_STANDARD: Final = frozenset(
    {
        _LIBRARY,
        os.path.join(_LIBRARY, "lib-dynload"),
        os.path.join(os.path.dirname(_LIBRARY), "python{}{}.zip".format(*sys.version_info)),
    }
)

_entered: list[Bundle] = []  # at most one


class Bundle:
    """A folder that `enter` puts on the import path. Making one reads the folder's names: a process that forks others does
    that once for all of them. `by_value`: its modules travel by value in Spark's pickles."""

    def __init__(self, root: Path, *, by_value: bool = False) -> None:
        self.root, self.by_value = root.absolute(), by_value
        root = self.root
        self._prefixes = tuple({f"{root}{os.sep}", f"{os.path.realpath(root)}{os.sep}"})
        self._dags: dict[str, list[Dag]] = {}  # by file: what its top level made
        self._found: dict[str, str] = {}  # by module: its file, "" for a folder
        # Folders that were not there when Python looked last; what is in one it looks up by itself.
        for entry in sys.path:
            if sys.path_importer_cache.get(entry, self) is None:
                del sys.path_importer_cache[entry]
        self._names = {name.partition(".")[0] for name in os.listdir(root)} - RESERVED
        # A proxy, or the two would keep each other: the processes that fork don't collect cycles of what they have frozen.
        self._finder = _Finder(str(root), weakref.proxy(self))
        self._finder.find_spec(" ")  # so that it has read the folder, too

    def dags_of(self, file: str) -> list[Dag]:
        """The DAGs of `file` (a path within the bundle), which is executed unless it was before. What it raises comes out."""
        if file not in self._dags and file.endswith(YAML_DAGS):
            from backfill_manager.dags.yaml.reader import dags_of_yaml

            self._dags[file] = dags_of_yaml(self.root / file, self.root, self.import_module, is_for_task=self.by_value)
        if file not in self._dags and (name := _module_name(file)):
            importlib.import_module(name)
        if file not in self._dags:  # its name is none in Python, or means another module
            self._execute(file)
        return self._dags[file]

    def import_module(self, name: str) -> ModuleType:
        """What `import name` finds in the bundle. `ModuleNotFoundError` for what it does not offer."""
        if self._finder.find_spec(name.partition(".")[0]) is None:
            raise ModuleNotFoundError(f"No module named {name!r} in the bundle", name=name)
        return importlib.import_module(name)

    def imported_files(self) -> set[str]:
        """Files of the bundle that are modules now: paths within it, with `/`."""
        return {self.file_of(path) for name, path in list(self._found.items()) if path and name in sys.modules}

    def file_of(self, path: str) -> str:
        """The path within the bundle, with `/`, of a file of it."""
        return Path(next(path[len(p) :] for p in self._prefixes if path.startswith(p))).as_posix()

    def leave(self) -> None:
        """Takes the folder from the import path, and its modules from `sys.modules`. Its functions keep running, but those
        that import something of the bundle only now no longer find it."""
        for name in list(self._found):
            sys.modules.pop(name, None)
        self._found.clear()
        sys.path[:] = [entry for entry in sys.path if entry != str(self.root)]
        sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook != self._finder_at]
        self._forget_finders()

    def enter(self) -> None:
        """See `enter_bundle`."""
        while _entered:
            _entered.pop().leave()
        _entered.append(self)
        if not self.by_value:  # a snapshot is on no import path before
            self._forget_finders()
        sys.path_hooks.insert(0, self._finder_at)
        others = [entry for entry in sys.path if entry not in _STANDARD and entry != str(self.root)]
        sys.path[:] = [*(entry for entry in sys.path if entry in _STANDARD), str(self.root), *others]
        sys.path_importer_cache[str(self.root)] = self._finder
        # Not the other way round: looking at each name in sys.modules would copy the memory pages of a process that forked us.
        hidden = {name for name in self._names if name in sys.modules and self._hides(name)}
        if hidden:
            for name in list(sys.modules):
                if name.partition(".")[0] in hidden:
                    del sys.modules[name]
        self._found.clear()

    def _hides(self, name: str) -> bool:
        """Whether the bundle has another module under the name of one that is loaded."""
        spec, module = self._finder.find_spec(name), sys.modules[name]
        if spec is None:
            return False
        if spec.origin is not None:
            return bool(getattr(module, "__file__", None) != spec.origin)
        return not set(spec.submodule_search_locations or ()) & set(getattr(module, "__path__", ()))

    def _finder_at(self, path: str) -> _Finder:
        """The hook: Python asks it for each entry of `sys.path` and of a package's `__path__`."""
        if not f"{path}{os.sep}".startswith(self._prefixes):
            raise ImportError(f"{path} is not in the bundle", path=path)
        return _Finder(path, self)

    def _forget_finders(self) -> None:
        for path in list(sys.path_importer_cache):
            if f"{path}{os.sep}".startswith(self._prefixes):
                del sys.path_importer_cache[path]

    def _execute(self, file: str) -> None:
        path, name = str(self.root / file), _made_up_name(file)
        spec = spec_from_file_location(name, path, loader=_Loader(self, name, path))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = module_from_spec(spec)
        self._found[name] = path
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise


def enter_bundle(root: Path, *, by_value: bool = False) -> Bundle:
    """Puts the folder on `sys.path` of this process, in place of the one that was entered before. Modules that are loaded
    already, but that the bundle has under the same name, are taken out of `sys.modules`. `by_value` is for tasks: Spark's
    workers don't have the bundle, so functions that are sent there take its modules along (PySpark has to be loaded before)."""
    bundle = Bundle(root, by_value=by_value)
    bundle.enter()
    return bundle


class _Finder(FileFinder):
    """Finds modules in one folder of the bundle."""

    def __init__(self, path: str, bundle: Bundle) -> None:
        source: Any = partial(_Loader, bundle)
        super().__init__(
            path,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (source, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )
        self._bundle, self._is_root = bundle, path == str(bundle.root)

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        if self._is_root and fullname in RESERVED:
            return None
        spec = super().find_spec(fullname, target)
        if spec is not None and spec.loader is None and self._is_root:
            spec = self._folder(fullname, list(spec.submodule_search_locations or ()))
        if spec is not None:
            self._bundle._found[fullname] = (spec.origin if spec.has_location else None) or ""
        return spec

    def _folder(self, name: str, locations: list[str]) -> ModuleSpec | None:
        """A folder without `__init__.py`: a package like others, as long as there is Python in it. (One without a loader
        would come after everything that is installed.)"""
        if not any(map(_holds_python, locations)):
            return None
        spec = ModuleSpec(name, _FolderLoader(self._bundle, name, os.path.join(locations[0], "__init__.py")))
        spec.submodule_search_locations = locations
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, bundle: Bundle, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._bundle = bundle

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        cloudpickle = sys.modules.get("pyspark.cloudpickle") if self._bundle.by_value else None
        if cloudpickle is not None and module.__name__ in sys.modules:
            cloudpickle.register_pickle_by_value(module)
        file = self._bundle.file_of(self.path)
        bundle = self._bundle
        with collecting(bundle.root, bundle.root / file, is_for_task=bundle.by_value) as collection:
            super().exec_module(module)
        self._bundle._dags[file] = collection.dags

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a module that travels by value does not take its loader along


class _FolderLoader(_Loader):
    def get_data(self, path: str) -> bytes:
        return b"" if path == self.path else super().get_data(path)


def _holds_python(folder: str) -> bool:
    return any(name.endswith(".py") for name in _files_below(folder))


def _files_below(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path)
            else:
                yield entry.name


def _module_name(file: str) -> str:
    """How an `import` names the file; "" when it can't."""
    parts = Path(file).with_suffix("").parts
    if not all(part.isidentifier() for part in parts) or parts[0] in RESERVED:
        return ""
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _made_up_name(file: str) -> str:
    """A Python name for `2024/my-dag.v2.py` that no other file of the bundle has."""
    return "file_" + re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", file.removesuffix(".py"))
