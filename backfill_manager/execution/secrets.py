"""Secrets by name, for `ctx.secret`: where the configuration's `secrets` says that they are, and who may read which.

The manager looks, each time that a task asks, so that a value which was changed is the new one. A value is stored nowhere: the
try's process gets it, and its log knows it, to mask it. No error holds one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.settings import SecretSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_BYTES: Final = 64 << 10  # of a value: keys and documents of a service account fit
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}")


class FoundSecret(NamedTuple):
    value: str
    source: str  # where it was found, for the log

    def __repr__(self) -> str:
        return f"FoundSecret(***, {self.source!r})"


class NoSecret(BackfillManagerError):
    """There is no such secret, or it can't be read."""


FindSecret = Callable[[str, str], FoundSecret]  # (name, bundle)


def no_secret(name: str, bundle: str = "") -> NoReturn:
    """A `FindSecret` that finds none."""
    raise NoSecret(f"{check_secret_name(name)} is not among the secrets; none are configured")


def check_secret_name(name: Any) -> str:
    """`InvalidInput` for what is no name of a secret: a path least of all."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            "a secret's name has letters, digits, `_`, `-` and `.`, begins with a letter or digit and has at most 127 "
            "characters; this one does not"
        )
    return name


class Secrets:
    """The sources of a configuration. `spark` is needed for those of Databricks only."""

    def __init__(
        self, settings: SecretSettings, spark: Callable[[], SparkSession], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._settings, self._environ = settings, environ
        self._sources: list[tuple[str, Callable[[str], str | None]]] = []
        if settings.env is not None:
            self._sources.append((f"the environment ({settings.env}...)", self._of_environment))
        if settings.files is not None:
            self._sources.append((f"files in {settings.files}", partial(_of_file, Path(settings.files))))
        if settings.databricks is not None:
            scope = settings.databricks
            self._sources.append((f"scope {scope} of Databricks", partial(_of_scope, scope, spark)))

    def find(self, name: str, bundle: str) -> FoundSecret:
        """`InvalidInput` for what is no name, and for one that this bundle may not read; `NoSecret` if no source has it."""
        check_secret_name(name)
        allow = self._settings.allow
        if allow is not None and not any(fnmatchcase(name, pattern) for pattern in allow.get(bundle, ())):
            raise InvalidInput(
                f"bundle {bundle} may not read {name}, which `secrets.allow` of the configuration does not name for it"
            )
        looked: list[str] = []
        for source, read in self._sources:
            try:
                value = read(name)
            except _Unreadable as problem:
                looked.append(f"{source}, where it {problem}")
                continue
            if value:
                return FoundSecret(value, source)
            looked.append(source if value is None else f"{source}, where it is empty")
        where = f"looked in {'; '.join(looked)}" if looked else "the configuration names no source (`secrets`)"
        raise NoSecret(f"{name} is not among the secrets; {where}")

    def _of_environment(self, name: str) -> str | None:
        prefix = self._settings.env or ""
        value = self._environ.get(prefix + re.sub("[.-]", "_", name).upper())
        if value is not None and len(value.encode("utf-8", "replace")) > MAX_BYTES:
            raise _Unreadable(f"has more than {MAX_BYTES >> 10} KB")
        return value


class _Unreadable(Exception):
    """It is there, and can't be used; the message continues a sentence: `can't be read`."""


def _of_file(folder: Path, name: str) -> str | None:
    """Its content without the newline at the end, which editors and `echo` leave there."""
    try:
        # Opening a pipe that nobody writes into would wait for ever, and with it all that tasks ask for.
        with open(folder / name, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _Unreadable("is no file")
            content = file.read(MAX_BYTES + 1)
        text = content.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _Unreadable(f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _Unreadable("is not UTF-8 text") from None
    if len(content) > MAX_BYTES:
        raise _Unreadable(f"has more than {MAX_BYTES >> 10} KB")
    return text.removesuffix("\n").removesuffix("\r")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _of_scope(scope: str, spark: Callable[[], SparkSession], name: str) -> str | None:
    try:
        from pyspark.dbutils import DBUtils  # only Databricks has it
    except ImportError:
        raise _Unreadable("can't be read: this is not Databricks, there is no dbutils") from None
    utils = DBUtils(spark())
    try:
        if all(one.key != name for one in utils.secrets.list(scope)):
            return None
        value = utils.secrets.get(scope=scope, key=name)
    except Exception as error:  # noqa: BLE001 - dbutils raises what its release raises; its text is not repeated
        raise _Unreadable(f"can't be read: {type(error).__name__}") from None
    if len(value.encode()) > MAX_BYTES:
        raise _Unreadable(f"has more than {MAX_BYTES >> 10} KB")
    return str(value)
