"""Which files every commit of a data table has added or removed, by the entries of its log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs
from pyarrow import json as arrow_json

from backfill_manager.store.data_tables.places import (
    FIRST,
    PAST,
    Changes,
    Files,
    Flags,
    Numbers,
    places_of,
    step_after,
)

REVERTS: Final = "reverts"  # in the user metadata of a commit that reverts runs: [[dag_id, run_id], ...]
UNDOES_FROM: Final = "undoes_from"  # beside it: the first version that it undoes
LOG: Final = "_delta_log"
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.")
_THREADS: Final = 8  # that read log entries


class LogEntries:
    """The JSON files of a log."""

    def __init__(self, location: str) -> None:
        self._system = fs.PyFileSystem(DeltaStorageHandler(location))
        self._names = [info.base_name for info in self._system.get_file_info(fs.FileSelector(LOG))]

    def since(self, version: int, last: int) -> tuple[Iterable[tuple[int, bytes]], int]:
        """The entries after `version`, up to `last`, without a gap at the end, and the first of them: the log has been cleaned
        up before it."""
        found = {int(match[1]) for name in self._names if (match := _ENTRY.fullmatch(name))}
        first = last = min(last, max(found, default=-1))
        while first - 1 in found and first - 1 > version:
            first -= 1
        if last not in found:
            return [], last + 1
        with ThreadPoolExecutor(_THREADS) as threads:
            wanted = range(first, last + 1)
            texts = threads.map(lambda number: _entry(self._system, number), wanted)
            return list(zip(wanted, texts, strict=True)), first

    def checkpoints(self) -> list[int]:
        """Versions that can be read whatever became of the entries before them; in order."""
        return sorted({int(match[1]) for name in self._names if (match := _CHECKPOINT.match(name))})


def _entry(system: fs.FileSystem, version: int) -> bytes:
    with system.open_input_stream(f"{LOG}/{version:020d}.json") as stream:
        return bytes(stream.read())


def actions_in(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)


class Commits:
    """Turns log entries into `Changes`, all of them at once."""

    def __init__(self, name: str, column: str, kind: str, state_id: str | None, *, is_partition: bool) -> None:
        """`name`: of the column; `column`: its name in files; `is_partition`: it divides the table, so a file has its value in
        its place."""
        self._name, self._column, self._kind = name, column, kind
        self._state_id, self._is_partition = state_id, is_partition

    def changes(
        self, entries: Iterable[tuple[int, bytes]], files_before: Callable[[], tuple[pa.Array, Files]]
    ) -> Changes:
        """`files_before`: paths and places of the files before the first entry, where an entry removes one without saying what it
        held."""
        lines, versions = _lines(entries)
        if not lines:
            return Changes()
        parsed = _parsed(lines, self._schema())
        metadata = self._metadata(parsed["commitInfo"], versions)
        ours = np.array([one for one, about in metadata.items() if self._is_ours(about)], np.int64)
        # each of what was added, then of what was removed
        number: list[Numbers] = []
        first: list[Numbers] = []
        past: list[Numbers] = []
        is_placed: list[Flags] = []
        paths: list[Any] = []
        for name in ("add", "remove"):
            at = np.flatnonzero(np.asarray(pc.is_valid(parsed[name])))
            files = parsed[name].combine_chunks().take(pa.array(at))
            is_change = np.asarray(pc.fill_null(pc.struct_field(files, "dataChange"), True))
            firsts, pasts, placed = self._places(files)
            first.append(firsts)
            past.append(pasts)
            is_placed.append(placed)
            paths.append(pc.struct_field(files, "path"))
            number.append(np.where(is_change, at, -1))
        if not is_placed[1].all():
            self._look_up(paths, first, past, is_placed, files_before)
        order = np.concatenate(number)
        chosen = np.argsort(order, kind="stable")[np.count_nonzero(order < 0) :]
        version = versions[order[chosen]]
        firsts, pasts, placed = np.concatenate(first), np.concatenate(past), np.concatenate(is_placed)
        undone, undoes_from = _undone({one: metadata[one] for one in ours.tolist()})
        froms = np.array([undoes_from.get(one, 0) for one in version.tolist()], np.int64)
        found = Changes(version, firsts[chosen], pasts[chosen], np.isin(version, ours), placed[chosen], froms)
        return self._clipped(metadata, found.where(~np.isin(version, undone)))

    def _clipped(self, metadata: Mapping[int, Mapping[str, Any]], changes: Changes) -> Changes:
        """A commit of ours that says that it has replaced intervals has changed rows nowhere else, though its files, written
        together or anew because of some of their rows, reach further. There is one element for each file and interval."""
        spans = [(version, *span) for version, about in metadata.items() for span in self._spans(about)]
        if not spans:
            return changes
        number, *texts = zip(*spans, strict=True)
        (low, has_low), (high, has_high) = (places_of(pa.array(ends, pa.string()), self._kind) for ends in texts)
        versions = np.array(number, np.int64)
        is_known = ~np.isin(versions, versions[~(has_low & has_high)])
        versions, low, high = versions[is_known], np.append(low[is_known], FIRST), np.append(high[is_known], PAST)
        begin, end = (np.searchsorted(versions, changes.version, side) for side in ("left", "right"))
        times = np.maximum(end - begin, 1)
        at = np.repeat(np.arange(len(times)), times)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
        is_one = (end > begin)[at]
        span = np.where(is_one, begin[at] + nth, -1)
        found = changes.where(at)
        first, past = np.maximum(found.first, low[span]), np.minimum(found.past, high[span])
        found = replace(found, first=first, past=past, is_placed=found.is_placed | is_one)
        return found.where(~is_one | (first < past))

    def _spans(self, about: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The ends of the intervals along the column that a commit has replaced; adjacent ones are one."""
        writes = [one for one in about.get("writes", [about]) if isinstance(one, dict)]
        parts = [one.get("replaced") or {} for one in writes]
        of_column = [one for one in parts if (one.get("column"), one.get("kind")) == (self._name, self._kind)]
        ends = [(one["lower"], one["upper"]) for one in of_column if one.get("lower") and one.get("upper")]
        found: list[tuple[str, str]] = []
        for lower, upper in sorted(ends) if len(ends) == len(parts) else ():
            if found and lower <= found[-1][1]:
                lower, before = found.pop()
                upper = max(before, upper)
            found.append((lower, upper))
        return found

    @staticmethod
    def _look_up(
        paths: Sequence[pa.Array], first: list[Numbers], past: list[Numbers], is_placed: list[Flags],
        files_before: Callable[[], tuple[pa.Array, Files]],
    ) -> None:  # fmt: skip
        """Gives what was removed the places at which it was added: by these entries, or before them."""

        def place(known: pa.Array, firsts: Numbers, pasts: Numbers, are_placed: Flags) -> None:
            found = np.asarray(pc.fill_null(pc.index_in(paths[1], known), -1))
            gains = ~is_placed[1] & (found >= 0)
            gains[gains] &= are_placed[found[gains]]
            first[1], past[1] = first[1].copy(), past[1].copy()
            first[1][gains], past[1][gains] = firsts[found[gains]], pasts[found[gains]]
            is_placed[1] = is_placed[1] | gains

        place(paths[0], first[0], past[0], is_placed[0])
        if not is_placed[1].all():
            known, files = files_before()
            place(known, files.first, files.past, (files.first != FIRST) | (files.past != PAST))

    def _schema(self) -> pa.Schema:
        value = pa.struct([(self._column, pa.string())])
        file = pa.struct(
            [("path", pa.string()), ("dataChange", pa.bool_()), ("stats", pa.string()), ("partitionValues", value)]
        )
        return pa.schema([("commitInfo", pa.struct([("userMetadata", pa.string())])), ("add", file), ("remove", file)])

    def _metadata(self, infos: pa.ChunkedArray, versions: Numbers) -> dict[int, dict[str, Any]]:
        """What this state may have said of its commits, by version, in order."""
        found = dict[int, dict[str, Any]]()
        for version, info in zip(versions.tolist(), infos.to_pylist(), strict=True):
            text = str((info or {}).get("userMetadata") or "")
            if self._state_id is None or self._state_id not in text:
                continue
            try:
                about = json.loads(text)
            except ValueError:
                continue
            if isinstance(about, dict):
                found[version] = about
        return dict(sorted(found.items()))

    def _is_ours(self, about: Mapping[str, Any]) -> bool:
        writes = about.get("writes", [about])
        return bool(writes) and all(isinstance(one, dict) and one.get("state") == self._state_id for one in writes)

    def _places(self, files: pa.StructArray) -> tuple[Numbers, Numbers, Flags]:
        """Where the rows of files (the fields of `add` or `remove`) lie, and whether that is known. Rows without a
        value lie nowhere."""
        if self._is_partition:
            text = pc.struct_field(files, ["partitionValues", self._column])
            first, is_known = places_of(text, self._kind)
            last = first
            is_empty = np.asarray(pc.is_valid(pc.struct_field(files, "partitionValues"))) & ~np.asarray(
                pc.fill_null(pc.greater(pc.utf8_length(text), 0), False)
            )
        else:
            value, count = (pa.struct([(self._column, kind)]) for kind in (pa.string(), pa.int64()))
            schema = pa.schema(
                [("numRecords", pa.int64()), ("minValues", value), ("maxValues", value), ("nullCount", count)]
            )
            texts = pc.struct_field(files, "stats").to_pylist()
            stats = _parsed([(text or "{}").replace("\n", " ").encode() for text in texts], schema)
            first, has_first = places_of(pc.struct_field(stats["minValues"], self._column), self._kind)
            last, has_last = places_of(pc.struct_field(stats["maxValues"], self._column), self._kind)
            is_known = has_first & has_last
            rows, nulls = stats["numRecords"], pc.struct_field(stats["nullCount"], self._column)
            none = pc.or_kleene(pc.equal(rows, 0), pc.equal(rows, nulls))
            is_empty = np.asarray(pc.fill_null(none, False))
        past = last + step_after(last, is_date=self._kind == "date")
        ends = (np.where(is_known, one, nothing) for one, nothing in ((first, FIRST), (past, PAST)))
        first, past = (np.where(is_empty, PAST, one) for one in ends)
        return first, past, is_known | is_empty


def _undone(commits: Mapping[int, Mapping[str, Any]]) -> tuple[list[int], dict[int, int]]:
    """Of our commits those of which nothing is left, as reverts have put back all that they had written, and by version of such a
    revert the first that it has undone. A revert of a part of a commit is a change like any other."""
    undone, undoes_from = list[int](), dict[int, int]()
    written = dict[int, set[tuple[str, str]]]()
    for version, about in commits.items():
        if REVERTS not in about:
            written[version] = {(one.get("dag", ""), one.get("run", "")) for one in about.get("writes", [about])}
            continue
        runs = {(dag, run) for dag, run in about[REVERTS]}
        touched = [one for one, by in written.items() if by & runs]
        if UNDOES_FROM in about and all(written[one] <= runs for one in touched):
            undone += touched
            undoes_from[version] = about[UNDOES_FROM]
        for one in touched:
            written[one] -= runs
    return undone, undoes_from


def _lines(entries: Iterable[tuple[int, bytes]]) -> tuple[list[bytes], Numbers]:
    """The actions that matter here, each with the version of its entry."""
    lines, versions = list[bytes](), list[int]()
    for version, text in entries:
        wanted = [
            line for line in text.splitlines() if any(name in line for name in (b'"add"', b'"remove"', b'"commitInfo"'))
        ]
        lines += wanted
        versions += [version] * len(wanted)
    return lines, np.array(versions, np.int64)


def _parsed(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """One row for each line, a document of JSON, with the fields of the schema alone. `ValueError` for what is none."""
    if not lines:
        return schema.empty_table()
    size = max(map(len, lines)) + 1
    return arrow_json.read_json(
        pa.BufferReader(b"\n".join(lines)), arrow_json.ReadOptions(block_size=max(1 << 22, 2 * size)),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )  # fmt: skip
