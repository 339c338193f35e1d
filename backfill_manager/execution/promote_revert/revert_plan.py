"""Decides what reverting runs means for one table: which parts get the rows of which version, and what speaks against it. Pure:
commits in, a plan out.

Each part goes back to the version before the first commit of the reverted runs that replaced it. Where nobody else has changed
it in between, an earlier version has the same rows, so that as few versions as possible are read. A table in which one of the
runs may have changed any row goes back as a whole.

What a run wrote that was reverted since is as if it had never been written, by that run or another. So is a file that others
have added and removed again, or removed and put back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from backfill_manager.execution.output.staged_write import Replaced
from backfill_manager.execution.promote_revert.preview_parts import Parts, WriteOfTry, between, joined
from backfill_manager.model.records import RunKey


@dataclass(frozen=True)
class Change:
    """What a commit has changed of the rows."""

    version: int
    by: str  # for people, of another writer than ours
    writes: tuple[WriteOfTry, ...] = ()  # of runs of this state
    # Fields of Delta's `add` and `remove`; none where writes say what changed.
    files: tuple[Mapping[str, Any], ...] = ()
    reverts: frozenset[RunKey] = frozenset()
    names_in_files: Mapping[str, str] | None = None  # by column, where it has set the columns

    def touches(self, parts: Parts) -> bool:
        if self.writes:
            return _meet(self.writes, parts)
        return any(parts.may_hold(file) for file in self.files)


@dataclass(frozen=True)
class Slice:
    """Parts that get the rows of a version; -1: there was no table, and they get none."""

    version: int
    parts: Parts


@dataclass(frozen=True)
class Conflict:
    """A commit of somebody else, after the first one that is to be undone."""

    version: int
    by: str
    parts: Parts
    is_certain: bool  # False: its files may hold rows of the parts; whether these have changed has to be compared


@dataclass(frozen=True)
class Undo:
    writes: tuple[WriteOfTry, ...]
    parts: Parts
    slices: tuple[Slice, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    done: int | None = None  # the version by which it has been done already

    @property
    def first(self) -> int:
        """The version of the first write that is undone."""
        return min(write.version for write in self.writes)


def plan_undo(changes: Sequence[Change], runs: Collection[RunKey]) -> Undo | None:
    """`changes`: all since the first write of one of the runs, in order. None: they have written nothing."""
    reverted = _reverted(changes)
    all_of_runs = [write for change in changes for write in change.writes if write.run in runs]
    mine = tuple(write for write in all_of_runs if (write.run, write.version) not in reverted)
    if not all_of_runs:
        return None
    if not mine:
        return Undo(tuple(all_of_runs), Parts.of(all_of_runs), done=max(reverted.values()))
    first, parts = min(write.version for write in mine), Parts.of(mine)
    others = [change for change in (_of_others(change, mine) for change in changes) if change is not None]
    others = _without_undone_files([change for change in others if change.version >= first])
    pieces = [(first, parts)] if parts.is_whole else _pieces(mine)
    by_version = defaultdict[int, list[Replaced]](list)
    conflicts: dict[int, tuple[Change, list[Replaced]]] = {}
    for since, piece in pieces:
        touching = [change for change in others if change.touches(piece)]
        base = max((change.version for change in touching if change.version < since), default=first - 1)
        by_version[base] += piece.parts
        for change in touching:
            left = _not_reverted(change, reverted) if change.version >= since else None
            if left is not None and left.touches(piece):
                conflicts.setdefault(change.version, (left, []))[1].extend(piece.parts)
    return Undo(
        mine, parts, tuple(Slice(version, _joined(found)) for version, found in sorted(by_version.items())),
        tuple(
            Conflict(version, change.by, at := _joined(found), at.is_whole or _meet(change.writes, at, known_only=True))
            for version, (change, found) in sorted(conflicts.items())
        ),
    )  # fmt: skip


def _reverted(changes: Iterable[Change]) -> dict[tuple[RunKey, int], int]:
    """Writes, as run and version, with the version of the commit that reverted them."""
    found: dict[tuple[RunKey, int], int] = {}
    written = defaultdict[RunKey, list[int]](list)
    for change in changes:
        for run in change.reverts:
            found |= {(run, version): change.version for version in written.pop(run, ())}
        for write in change.writes:
            written[write.run].append(write.version)
    return found


def _of_others(change: Change, mine: Collection[WriteOfTry]) -> Change | None:
    """The change without what is to be undone; None if nothing is left of it."""
    if not change.writes:
        return change if change.files else None
    left = tuple(write for write in change.writes if write not in mine)
    return _with(change, left) if left else None


def _without_undone_files(others: Sequence[Change]) -> list[Change]:
    """Without files that are again what they were before these changes. A commit that reverts runs says so itself."""
    balance = Counter[tuple[Any, ...]]()
    for change in others:
        if not change.reverts:
            for file in change.files:
                balance[_file_key(file)] += 1 if "modificationTime" in file else -1  # of Delta's `add` alone
    left = ([file for file in change.files if change.reverts or balance[_file_key(file)]] for change in others)
    return [replace(change, files=tuple(files)) for change, files in zip(others, left, strict=True)]


def _file_key(file: Mapping[str, Any]) -> tuple[Any, ...]:
    """A file with other rows deleted by a deletion vector is another one."""
    vector = file.get("deletionVector") or {}
    return file.get("path"), vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")


def _not_reverted(change: Change, reverted: Mapping[tuple[RunKey, int], int]) -> Change | None:
    """The change without what was reverted since; None if nothing is left of it, or it is that revert: both together have
    changed nothing."""
    if change.reverts:
        return None
    left = tuple(write for write in change.writes if (write.run, write.version) not in reverted)
    return _with(change, left) if left or not change.writes else None


def _with(change: Change, writes: tuple[WriteOfTry, ...]) -> Change:
    by = change.by if not writes else ", ".join(dict.fromkeys(f"run {one.run_id} of {one.dag_id}" for one in writes))
    return Change(change.version, by, writes, change.files, change.reverts)


def _meet(writes: Iterable[WriteOfTry], parts: Parts, *, known_only: bool = False) -> bool:
    """Whether one of the writes may have changed rows of the parts; `known_only`: of those that say which rows they replace."""
    for write in writes:
        if write.replaced is None:
            if not known_only:
                return True
        elif parts.is_whole or any(write.replaced.overlaps(part) for part in parts.parts):
            return True
    return False


def _pieces(writes: Sequence[WriteOfTry]) -> list[tuple[int, Parts]]:
    """The parts, cut so that all rows of a piece were replaced by the same writes; with the version of the first of these. Parts
    along several columns may share rows in ways that nobody knows: they are one piece."""
    known = [(write.replaced, write.version) for write in writes if write.replaced is not None]
    if len({(part.column, part.kind, part.key is None) for part, _ in known}) > 1:
        return [(min(version for _, version in known), Parts.of(writes))]
    first: dict[Replaced, int] = {}
    for part, version in known:
        first[part] = min(version, first.get(part, version))
    if known[0][0].key is not None:
        return [(version, Parts((part,))) for part, version in first.items()]
    return [(version, Parts((part,))) for part, version in _cut(first)]


def _cut(first: Mapping[Replaced, int]) -> Iterator[tuple[Replaced, int]]:
    ranges = sorted(first, key=lambda part: (part.lower or "", part.upper or ""))
    if all((one.upper or "") <= (other.lower or "") for one, other in pairwise(ranges)):
        yield from first.items()
        return
    cuts = sorted({end or "" for part in ranges for end in (part.lower, part.upper)})
    for lower, upper in pairwise(cuts):
        over = [part for part in ranges if (part.lower or "") <= lower and upper <= (part.upper or "")]
        if over:
            yield between(over[0], lower, upper), min(first[part] for part in over)


def _joined(parts: Iterable[Replaced]) -> Parts:
    return Parts(tuple(joined(parts)))
