"""A bundle in a `.zip` or `.whl`: unpacked once per content. What an archive could do to its reader is refused."""

from __future__ import annotations

import hashlib
import lzma
import os
import posixpath
import shutil
import stat
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from backfill_manager.clock import SystemClock, micros
from backfill_manager.dags.bundles import source
from backfill_manager.dags.bundles.files import RACY_NS, DagFiles, Stamp, belongs, stamp_of
from backfill_manager.errors import InvalidInput

_ENCRYPTED: Final = 0x1
_DAMAGED: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip


class ArchiveSource(source.BundleSource):
    def __init__(self, path: Path, *, cache: Path, dag_files: DagFiles) -> None:
        self._path, self._dag_files = path, dag_files
        self._unpacked = cache / "archives" / hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
        self._seen: tuple[Stamp, Path] | None = None

    def fetch(self) -> source.FetchedFiles:
        try:
            with self._path.open("rb") as file:
                return source.FetchedFiles(self._folder_of(file))
        except FileNotFoundError:
            raise InvalidInput(f"the archive {self._path} does not exist") from None
        except IsADirectoryError:
            raise InvalidInput(f"{self._path} is a folder named like an archive; give it another name") from None
        except OSError as error:
            raise InvalidInput(f"the archive {self._path} can't be read or unpacked: {error}") from None
        except _DAMAGED as error:
            raise InvalidInput(f"{self._path} is damaged, or no zip file: {error}") from None

    def _folder_of(self, file: BinaryIO) -> Path:
        """The stamp is compared first; an archive that seems to have changed is identified by its bytes."""
        stamp, now_ns = stamp_of(os.fstat(file.fileno())), micros(SystemClock().now()) * 1000
        if self._seen and self._seen[0] == stamp and self._seen[1].is_dir():
            os.utime(self._seen[1])
            return self._seen[1]
        if stamp[1] > source.MAX_BUNDLE_SIZE:
            raise InvalidInput(
                f"{self._path} has {stamp[1] >> 20} MB; a bundle may have {source.MAX_BUNDLE_SIZE >> 20}"
            )

        def fill(into: Path) -> None:
            with zipfile.ZipFile(file) as archive:
                for name, entry in self._entries(archive).items():
                    to = into / name
                    to.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as content, to.open("xb") as copy:
                        shutil.copyfileobj(content, copy)
            if stamp_of(os.fstat(file.fileno())) != stamp:
                advice = "write it beside its place and rename it"
                raise InvalidInput(f"{self._path} was changed while it was read; {advice}")

        place = source.create_atomically(self._unpacked / f"{_digest(file)}{self._dag_files.key}", fill)
        is_settled = max(stamp[0], stamp[3]) < now_ns - RACY_NS
        self._seen = (stamp, place) if is_settled else None
        return place

    def _entries(self, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
        """Those to be unpacked, by their paths within the bundle."""
        entries = archive.infolist()
        if len(entries) > source.MAX_FILES:
            raise InvalidInput(f"{self._path} holds {len(entries)} entries; a bundle may have {source.MAX_FILES}")
        size = sum(entry.file_size for entry in entries)
        if size > source.MAX_BUNDLE_SIZE:
            raise InvalidInput(
                f"{self._path} unpacks to {size >> 20} MB; a bundle may have {source.MAX_BUNDLE_SIZE >> 20}"
            )
        by_name: dict[str, zipfile.ZipInfo] = {}
        is_wheel = self._path.suffix.lower() == ".whl"
        for entry in entries:
            name = posixpath.normpath(entry.filename)  # some packers write `./flights.py`
            wrong = _refused(entry) or ("is there twice" if name in by_name else None)
            if wrong:
                raise InvalidInput(f"{self._path} is refused: its entry {entry.filename!r} {wrong}")
            by_name[name] = entry
        return {
            name: entry
            for name, entry in by_name.items()
            if not entry.is_dir()
            and not (is_wheel and name.partition("/")[0].endswith(".dist-info"))
            and belongs(name, entry.file_size, self._dag_files)
        }


def _refused(entry: zipfile.ZipInfo) -> str | None:
    """Why an entry makes the whole archive one that is not unpacked."""
    name = entry.filename
    if name.startswith(("/", "\\")) or name[1:2] == ":" or ".." in name.replace("\\", "/").split("/"):
        return "lies outside the archive"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link; put the file itself there"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    return None


def _digest(file: BinaryIO) -> str:
    hashed = hashlib.sha256()
    while chunk := file.read(1 << 20):
        hashed.update(chunk)
    return hashed.hexdigest()
