"""`copy_of`: a new backfill with the range, options and settings of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.planning.backfills.backfill_range import NOTHING_TO_BATCH
from backfill_manager.queries.backfill_settings import options_to_copy, settings_now
from backfill_manager.queries.backfills import find_uncounted
from backfill_manager.queries.dags import known_dag
from backfill_manager.schemas import errors
from backfill_manager.schemas.backfill_options import BackfillInput
from backfill_manager.store.base import Store

_LISTS: Final = ("dates", "partitions")
_RANGE: Final = ("start_date", "end_date")
_COVERED: Final = ("kind", "by", *_LISTS, *_RANGE)  # they belong together


def with_copied(store: Store, values: BackfillInput) -> BackfillInput:
    """`values` with what was not given as it is of the backfill `copy_of`: its options, and its settings as they are now."""
    if values.copy_of is None:
        return values
    found = find_uncounted(store, values.copy_of)
    if found["dag_id"] != values.dag_id:
        raise errors.COPY_OF_OTHER_DAG(backfill_id=found["backfill_id"], of=found["dag_id"])
    given = {name: getattr(values, name) for name in values.model_fields_set - {"copy_of"}}
    copied = {**options_to_copy(store, found), **settings_now(store, found).values}
    copied = {name: value for name, value in copied.items() if name in BackfillInput.model_fields and value is not None}
    was, kind = copied["kind"], given.get("kind") or copied["kind"]
    covers_other = kind != was and (kind in _LISTS or was in _LISTS)
    covers_other |= any(given.get(name) for name in ("config", *_LISTS, *(_RANGE if was in _LISTS else ())))
    left_out = _COVERED if covers_other else ("kind", "by", "reprocess") if kind != was else ()
    copied = {name: value for name, value in copied.items() if name not in left_out}
    if kind != was and "single" in (kind, was):
        copied |= _end_as_of(store, values.dag_id, was, copied)
    if (
        kind in NOTHING_TO_BATCH
        or given.get("partitions")
        or given.get("reprocess", copied.get("reprocess")) == "failed_tasks"
    ):
        copied.pop("batch", None)
    if copied.get("tasks") is None:  # which these are upstream and downstream of; of older releases they are not known
        copied = {name: value for name, value in copied.items() if name not in ("with_upstream", "with_downstream")}
    if given.get("config"):
        copied = {name: value for name, value in copied.items() if name not in ("run_backwards", "allow_future")}
    return BackfillInput.parse({**copied, **given})


def _end_as_of(store: Store, dag_id: str, was: str, copied: Mapping[str, Any]) -> dict[str, str | None]:
    """The end of the range in the other sense: of `single` it is where the interval ends, of the others where the last begins."""
    if copied.get("end_date") is None:
        return {}
    _, dag = known_dag(store, dag_id)
    start = copied.get("start_date")
    timetable = timetable_of(dag, None if start is None else parse_instant(start))
    end = parse_instant(copied["end_date"])
    last = timetable.last_before(end) if was == "single" else timetable.last_at_or_before(end)
    if last is None:
        return {}
    if was == "single":
        return {"end_date": format_instant(last)}
    after = timetable.next_after(last)
    return {} if after is None else {"end_date": format_instant(after)}
