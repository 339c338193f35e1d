"""Keeps a bundle's files as they were, for the runs of DAG versions made from them.

    <base>/<hash>/...           a snapshot; the hash is of what is in it, so one that exists is right by its name
    <base>/files/<aa>/<sha256>  each content once; the files of snapshots are hard links to it

So an edit of one file costs one copy, however large the bundle is. A content is checked against its name before it is
linked: a change forced upon a file of one snapshot is not carried to the next. Where hard links don't work, files are
copied. A snapshot is made beside its place and renamed, so that readers see all of it or nothing. Files are
parsed *from* the snapshot: what was checked is, to the byte, what runs.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from backfill_manager.dags.bundles.files import BundleContent, DagFiles, FileFingerprints, read, read_bundle
from backfill_manager.dags.bundles.source import rename_unless_there, scratch_folder
from backfill_manager.errors import InvalidInput

STORE: Final = "files"


class Snapshot(NamedTuple):
    path: Path
    content: BundleContent


def take(
    root: Path, base: Path, *, content: BundleContent | None = None, fingerprints: FileFingerprints | None = None
) -> Snapshot:
    """The snapshot of the folder `root` under `base`, made if there is none of this content yet. `content` is what was
    read of `root` just now; the snapshot's own differs from it when files have been changed since."""
    fingerprints = fingerprints or FileFingerprints()
    content = content or read_bundle(root, without=base, fingerprints=fingerprints)
    place = base.absolute() / content.hash
    if _is_there(place):
        return Snapshot(place, content)
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)  # one that is there already keeps its mode
        scratch = scratch_folder(base)
    except OSError as error:
        raise InvalidInput(f"the snapshots' folder {base} can't be written: {error.strerror}") from None
    try:
        with scratch as name:
            content = _fill(Path(name), root, base / STORE, content, fingerprints.dag_files)
            place = base.absolute() / content.hash
            rename_unless_there(Path(name), place)
            if not _is_there(place):
                raise FileNotFoundError(errno.ENOENT, "it was deleted meanwhile")
    except OSError as error:
        raise InvalidInput(f"a snapshot of {root} can't be written under {base}: {error.strerror}") from None
    return Snapshot(place, content)


def _is_there(place: Path) -> bool:
    """Whether the snapshot is; if so, it is in use again: retention goes by its time."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    except OSError:  # another user's
        return place.is_dir()
    return True


def _fill(into: Path, root: Path, store: Path, content: BundleContent, dag_files: DagFiles) -> BundleContent:
    into.chmod(0o755)  # mkdtemp makes it private; who may read it is decided by the mode of `base`
    files: dict[str, str] = {}
    candidates, before = [], frozenset(content.candidates)
    for folder in {(into / file).parent for file in content.files}:
        folder.mkdir(parents=True, exist_ok=True)
    for file, digest in content.files.items():
        copy, is_candidate = into / file, file in before
        if not _linked(store / digest[:2] / digest, copy):
            content_now = read(root / file, file, dag_files)
            if content_now is None:
                if not (root / file).parent.is_dir():  # all of it may be being replaced
                    raise InvalidInput(f"the folder of {file} is gone from {root} since it was read")
                continue
            digest, is_candidate = hashlib.sha256(content_now).hexdigest(), dag_files.may_be(file, content_now)
            copy.write_bytes(content_now)
            copy.chmod(0o444)  # not edited by mistake
            stored = store / digest[:2] / digest  # for later snapshots; one that can't be kept is copied again
            with suppress(OSError):  # another process was quicker; no links on this file system
                stored.parent.mkdir(parents=True, exist_ok=True)
                os.link(copy, stored)
        files[file] = digest
        if is_candidate:
            candidates.append(file)
    return BundleContent(files, tuple(candidates))


def _linked(stored: Path, copy: Path) -> bool:
    """Makes `copy` a link to a stored content, when there is one and its hash is its name."""
    try:
        if hashlib.sha256(stored.read_bytes()).hexdigest() != stored.name:
            stored.unlink()
            return False
        os.link(stored, copy)
    except OSError:  # none yet; no links on this file system; as many links to it as there can be
        return False
    return True
