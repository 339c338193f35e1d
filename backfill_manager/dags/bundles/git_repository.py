"""A bundle in a git repository, at a branch, tag or commit.

    <cache>/git/<hash of the address>/repository.git   bare; only the commits that were fetched, without their history
                                     /trees/<tree id>  a folder of the repository, as it is in some commit

A tree is named by git's id of its content, so a commit that changes nothing in the bundle's folder brings no new files.
Files are as they were committed (no line-end or LFS filters), submodules are left out, and links are kept only when they
lead to a file of the same folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.dags.bundles import source
from backfill_manager.dags.bundles.file_lock import locked
from backfill_manager.dags.bundles.files import DagFiles, belongs
from backfill_manager.dags.bundles.git import Damaged, Git
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.masking import without_credentials

_LINK: Final = "120000"
_LIKE_AN_ID: Final = re.compile(r"[0-9a-f]{7,40}")
_ALL_HISTORY: Final = "--depth=2147483647"
_NO_SUCH_REF: Final = ("find remote ref", "not our ref", "unadvertised object", "remote ref does not exist")


@dataclass(frozen=True)
class _Entry:
    path: str
    is_link: bool
    blob: str
    size: int  # bytes


class GitSource(source.BundleSource):
    def __init__(self, url: str, ref: str, path: str, *, cache: Path, dag_files: DagFiles) -> None:
        self._url, self._ref, self._dag_files = _absolute(url), ref, dag_files
        self._shown = without_credentials(url)
        self._path = "/".join(part for part in path.split("/") if part not in ("", "."))
        self._home = cache.absolute() / "git" / hashlib.sha256(self._url.encode()).hexdigest()[:16]
        self._git = Git(self._home / "repository.git")

    def fetch(self) -> source.FetchedFiles:
        try:
            # A copy of code that its owner may not show to all.
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self._home / "lock"):  # one process at a time works in the copy of a repository
                try:
                    return self._fetched()
                except Damaged:  # it is but a cache
                    shutil.rmtree(self._git.repository, ignore_errors=True)
                    return self._fetched()
        except Damaged as error:
            raise InvalidInput(f"the copy of {self._shown} under {self._home} can't be used: {error}") from None
        except OSError as error:
            raise InvalidInput(f"{self._shown} can't be copied to {self._home}: {error}") from None

    def _fetched(self) -> source.FetchedFiles:
        if not (self._git.repository / "HEAD").is_file():
            self._git.output("init", "--quiet", "--bare", "--template=")
        commit = self._commit()
        folder = self._resolved(f"{commit}:{self._path}") if self._path else commit
        tree = self._resolved(f"{folder}^{{tree}}") if folder else None
        if tree is None:
            raise InvalidInput(
                f"there is no folder {self._path!r} in the git repository {self._shown} at {self._ref} ({commit[:10]})"
            )
        place = self._home / "trees" / f"{tree}{self._dag_files.key}"
        return source.FetchedFiles(source.create_atomically(place, lambda into: self._write(tree, into)), commit)

    def _commit(self) -> str:
        is_like_an_id = bool(_LIKE_AN_ID.fullmatch(self._ref))
        if is_like_an_id and (have := self._resolved(f"{self._ref}^{{commit}}")):
            return have  # a commit never changes: no need to fetch
        ended = self._git.run("fetch", "--quiet", "--no-tags", "--depth=1", "--", self._url, self._ref)
        revision = "FETCH_HEAD"
        if not ended.is_good and any(word in ended.reason for word in _NO_SUCH_REF):
            if not is_like_an_id:
                raise self._no_such_ref()
            # the beginning of an id can only be looked up here; so can a whole one when the server gives out none but tips
            refs = ("+refs/heads/*:refs/theirs/heads/*", "+refs/tags/*:refs/theirs/tags/*")
            ended = self._git.run("fetch", "--quiet", "--no-tags", "--prune", _ALL_HISTORY, "--", self._url, *refs)
            revision = self._ref
        if not ended.is_good:
            raise InvalidInput(f"the git repository {self._shown} can't be fetched: {ended.reason}")
        commit = self._resolved(f"{revision}^{{commit}}")
        if commit is None:
            raise self._no_such_ref()
        return commit

    def _no_such_ref(self) -> InvalidInput:
        listed = self._git.run("ls-remote", "--quiet", "--heads", "--tags", "--refs", "--", self._url)
        refs_there = re.findall(r"\trefs/(?:heads|tags)/(.+)", listed.printed.decode("utf-8", "replace"))
        others = f"; there are {', '.join(refs_there[:5])}" if refs_there else "; it is empty"
        hint = nearest(self._ref, refs_there) or others
        return InvalidInput(f"the git repository {self._shown} has no branch, tag or commit {self._ref!r}{hint}")

    def _resolved(self, expression: str) -> str | None:
        ended = self._git.run("rev-parse", "--verify", "--quiet", expression)
        return ended.printed.decode().strip() if ended.is_good else None

    def _entries(self, tree: str) -> list[_Entry]:
        entries = []
        for line in os.fsdecode(self._git.output("ls-tree", "-r", "-l", "-z", "--full-tree", tree)).split("\0")[:-1]:
            about, _, path = line.partition("\t")
            mode, kind, blob, size = about.split()
            if kind == "blob" and belongs(path, int(size), self._dag_files):
                entries.append(_Entry(path, mode == _LINK, blob, int(size)))
        mega_bytes = sum(entry.size for entry in entries) >> 20
        if len(entries) > source.MAX_FILES or mega_bytes >= source.MAX_BUNDLE_SIZE >> 20:
            raise InvalidInput(
                f"{self._shown} has {len(entries)} files of {mega_bytes} MB in {self._path or '.'!r}; a bundle may have "
                f"{source.MAX_FILES} of {source.MAX_BUNDLE_SIZE >> 20} MB: name a folder of it as `path`"
            )
        return entries

    def _write(self, tree: str, into: Path) -> None:
        entries = self._entries(tree)
        for folder in {(into / entry.path).parent for entry in entries}:
            folder.mkdir(parents=True, exist_ok=True)
        with self._git.blobs() as blobs:
            for entry in sorted(entries, key=lambda entry: entry.is_link):  # links last: nothing is written through one
                content = blobs.read(entry.blob)
                if entry.is_link:
                    os.symlink(content.replace(b"\0", b"?"), into / entry.path)
                else:
                    (into / entry.path).write_bytes(content)
        inside = os.path.realpath(into) + os.sep
        links = [into / entry.path for entry in entries if entry.is_link]  # where they lead to is only known now
        for link in [link for link in links if not (os.path.realpath(link).startswith(inside) and link.is_file())]:
            link.unlink()


def _absolute(url: str) -> str:
    """A local path holds wherever git is started; `https://...` and `user@host:path` stay."""
    is_remote = "://" in url or ":" in url.partition("/")[0]
    return url if is_remote else str(Path(url).absolute())
