"""A bundle's files as they were: copied once per content, kept for the runs that were made with them.

`<base>/<hash>/...`, where the hash is of what was copied, so a snapshot that exists is right by its name. It is
copied beside its place and renamed, so that whoever looks sees all of it or nothing. Files are parsed *from* the
snapshot: what was checked is, to the byte, what runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from backfill_manager.dags.bundles.files import BundleContent, may_make_dags, read, read_bundle, walk
from backfill_manager.errors import InvalidInput


@dataclass(frozen=True)
class Snapshot:
    path: Path
    content: BundleContent


def take(root: Path, base: Path) -> Snapshot:
    """The snapshot of the folder `root` under `base`, copied if there is none of this content yet."""
    content = read_bundle(root, without=base)
    place = base.absolute() / content.hash
    if place.is_dir():
        return Snapshot(place, content)
    try:
        base.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".taking-", dir=base))
    except OSError as error:
        raise InvalidInput(f"the snapshots' folder {base} can't be written: {error.strerror}") from None
    try:
        content = _copy(root, scratch, base)  # the files may have changed since they were read
        place = base.absolute() / content.hash
        try:
            scratch.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was quicker, with the same content
                raise
    except OSError as error:
        raise InvalidInput(f"a snapshot of {root} can't be written under {base}: {error.strerror}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Snapshot(place, content)


def _copy(root: Path, into: Path, base: Path) -> BundleContent:
    into.chmod(0o755)  # mkdtemp makes it private; executors and colleagues may read it
    files: dict[str, str] = {}
    candidates = []
    for file in walk(root, without=base):
        content = read(root / file)
        if content is None:
            continue
        copy = into / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        os.chmod(copy, 0o444)  # nobody edits the past by mistake
        files[file] = hashlib.sha256(content).hexdigest()
        if may_make_dags(file, content):
            candidates.append(file)
    return BundleContent(files, tuple(candidates))
