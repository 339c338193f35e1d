"""Backfills and their items in words and columns; previews of `bfm backfill create` and `bfm tasks clear`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backfill_manager import humanise
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.printer import Column, Output, seconds
from backfill_manager.cli.render.rendered import print_rendered
from backfill_manager.errors import nearest
from backfill_manager.humanise import plural, size
from backfill_manager.model.states import ITEM_STATES

SHOWN_FIRST, SHOWN_LAST = 20, 5  # items of a plan
MAX_RUNS_SHOWN: Final = 50  # of a clear
_SIZES: Final = (
    *(Column(name, write="{:,}".format, right=True) for name in ("rows", "files")),
    Column("bytes", "size", size, right=True),
)


def format_config(config: Any) -> str:
    """`schedule 2013-01-01T05:00:00Z .. 2013-01-31T05:00:00Z`, `3 dates`, `2 partitions`."""
    kind = config.get("type", "?")
    options = ", newest first" if config.get("run_backwards") else ""
    options += ", also intervals that have not ended" if config.get("allow_future") else ""
    if kind in {"dates", "partitions"}:
        return plural(config.get("total", len(config.get(kind, ()))), kind[:-1]) + options
    end = config.get("end_date") or "the last complete interval"  # left out, and the manager has not planned it yet
    kind = f"{kind} by data" if config.get("by") == "data" else kind
    return f"{kind} {config.get('start_date') or ''} .. {end}{options}"


def format_item_counts(backfill: Mapping[str, Any]) -> str:
    """`31: 4 success, 1 failed, 26 pending`"""
    counts = [f"{backfill[state]} {state}" for state in ITEM_STATES if backfill[state]]
    return f"{backfill['planned']}: {', '.join(counts)}" if counts else ""


def why(backfill: Mapping[str, Any]) -> str | None:
    """Why a backfill is in its state, or what it waits for and until when."""
    if backfill.get("waits_until"):  # a server of an older release does not say it
        return f"waits for {backfill['waits_for']}, until {backfill['waits_until']}"
    reason: str | None = backfill["reason"]
    return reason


def remark(backfill: Mapping[str, Any]) -> str | None:
    """For a list: that it is a preview, or was one, and why it is in its state."""
    outcome = backfill.get("preview_outcome")
    preview = f"{outcome} preview" if outcome else "preview" if backfill.get("preview_id") else None
    return "; ".join(filter(None, (preview, why(backfill)))) or None


def item_columns(items: Sequence[Mapping[str, Any]], *more: str) -> list[Column | str]:
    """Those in which some item has a value."""
    names = ["logical_date", "interval_start", "interval_end", "partition_key", "batch", "state", "reason", *more]
    if all(item.get("interval_start") == item.get("logical_date") for item in items):
        names.remove("interval_start")
    return [
        Column("ordinal", "#", right=True),
        *(
            Column(name, fold=name == "reason", optional=name == "interval_end")
            for name in names
            if name == "state" or _has(items, name)
        ),
    ]


def note_unknown_pools(context: CliContext, dag_id: str, pools: Mapping[str, Sequence[str]]) -> None:
    """`pools`: those that do not exist, each with the tasks that name it."""
    known = context.backend.pool_names() if pools else []
    for pool, tasks in pools.items():
        hint = nearest(pool, known, n=1) or "."
        new = "A new pool is made in the configuration file, for the manager's next start."
        context.out.note(f"{humanise.unknown_pool(dag_id, pool, tasks)}{hint} {new}")


def print_plan(context: CliContext, plan: Mapping[str, Any]) -> None:
    out = context.out
    if not out.is_table:
        out.print_document(plan)
        return
    summary, downstream = plan["summary"], plan.get("downstream") or ()
    dag_id = summary.get("dag_id")  # a server of an older release does not say it
    _print_items(out, plan["items"], dag_id)
    out.print_line("")
    out.print_line(f"{plan_counts(summary)}.")
    _note_warnings(context, summary, downstream)
    for line in _summary_lines(out, summary, dag_id):
        out.print_line(line)
    if downstream:
        out.print_line("")
        for line in tree_lines(summary.get("dag_id", "this DAG"), summary, downstream):
            out.print_line(line)
    if first := plan.get("first_item"):
        out.print_line("")
        out.print_line("What the tasks of the first run see:")
        print_rendered(out, first)
    for line in _left_out_lines(summary):
        out.note(line)


def _note_warnings(context: CliContext, summary: Mapping[str, Any], downstream: Sequence[Mapping[str, Any]]) -> None:
    for line in warnings(summary):
        context.out.note(line)
    for below in downstream:
        for line in warnings(below["summary"]):
            context.out.note(f"{below['dag_id']}: {line}")
    for one in (summary, *(below["summary"] for below in downstream)):
        note_unknown_pools(context, one.get("dag_id", "this DAG"), one.get("unknown_pools") or {})


def _summary_lines(out: Output, summary: Mapping[str, Any], dag_id: str | None) -> Iterator[str]:
    """What runs, in which batches, what it waits for, and how long it may take."""
    if (tasks := summary.get("tasks")) is not None:
        yield f"Only these tasks run: {', '.join(tasks)}."
    if why := summary.get("batching"):
        yield why
    yield from wait_lines(summary.get("waits"))
    if summary["pending"]:
        yield from estimate_lines(out.in_zone(summary.get("estimate") or {}, dag_id))


def _left_out_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """DAGs and intervals that the backfill leaves out, and which options take them in."""
    for dag_id, why in (summary.get("left_out") or {}).items():
        yield f"{dag_id} would be skipped: {why}."
    if summary.get("no_downstream"):
        yield f"Nothing is downstream: {summary['no_downstream']}."
    skipped = summary["skipped"]
    if not summary["pending"] and skipped:
        yield "Nothing would run."
        if "already exists" in skipped:
            yield (
                "--reprocess completed also runs dates that have a run; failed those whose run failed, as a new run; "
                "failed_tasks their failed tasks, in place."
            )
    if "not complete yet" in skipped:
        yield "Intervals that have not ended are skipped (not complete yet); --allow-future runs them, too."


def _print_items(out: Output, items: Sequence[Mapping[str, Any]], dag_id: str | None) -> None:
    columns = [*item_columns(items), *(one for one in (_RERUNS, *_SIZES) if _has(items, one.field))]
    if any(item.get("waits_for") or item.get("may_wait_for") for item in items):
        columns.append(_WAITS)
    if len(items) <= SHOWN_FIRST + SHOWN_LAST + 1:
        out.print_rows(items, columns, empty="Nothing would run.", dag_id=dag_id)
        return
    skipped_rows = {"ordinal": "…", "logical_date": f"… {len(items) - SHOWN_FIRST - SHOWN_LAST} more"}
    if items[0].get("logical_date") is None:
        skipped_rows["partition_key"] = skipped_rows.pop("logical_date")
    out.print_rows([*items[:SHOWN_FIRST], skipped_rows, *items[-SHOWN_LAST:]], columns, dag_id=dag_id)


def _format_rerun(item: Mapping[str, Any]) -> str | None:
    """`2 failed tasks in run backfill__2013-01-05T05:00:00Z`; None for an item that gets a new run."""
    if not item.get("failed_tasks"):
        return None
    return f"{plural(item['failed_tasks'], 'failed task')} in run {item['run_id']}"


def _format_waits(item: Mapping[str, Any]) -> str | None:
    may = [f"{name} (not looked for)" for name in item.get("may_wait_for") or ()]
    return ", ".join([*(item.get("waits_for") or ()), *may]) or None


_WAITS: Final = Column("waits_for", "would wait for", fold=True, of=_format_waits)
_RERUNS: Final = Column("failed_tasks", "re-runs", of=_format_rerun)


def _has(items: Sequence[Mapping[str, Any]], field: str) -> bool:
    return any(item.get(field) is not None for item in items)


def plan_counts(summary: Mapping[str, Any]) -> str:
    """`31 items: 30 would run in 3 runs, 1 skipped (in flight)`"""
    runs = summary.get("runs")
    batched = f" in {plural(runs, 'run')}" if runs is not None and runs < summary["pending"] else ""
    in_place = ""
    if reruns := summary.get("reruns"):
        failed = plural(reruns["failed_tasks"], "failed task")
        in_place = f" ({plural(reruns['runs'], 'run')} in place, to re-run {failed})"
    parts = [f"{summary['pending']} would run{batched}{in_place}"]
    parts += [f"{number} skipped ({reason})" for reason, number in summary["skipped"].items()]
    return f"{plural(summary['items'], 'item')}: {', '.join(parts)}"


def warnings(summary: Mapping[str, Any]) -> Iterator[str]:
    """What may not be meant."""
    if number := summary.get("existing_not_succeeded"):
        yield f"{number} of those that exist already did not succeed; --reprocess failed does them again."
    if number := summary.get("before_start_date"):
        yield f"{plural(number, 'item')} that would run {'starts' if number == 1 else 'start'} before the DAG's start_date."


def wait_lines(waits: Mapping[str, Any] | None) -> Iterator[str]:
    """How many items would wait for data, and for which."""
    if waits is None:
        return
    names = [wait_words(one) for one in waits["for"] if one["missing"]]
    if names:
        yield f"{plural(waits['items'], 'item')} would wait for data: {'; '.join(names)}."
    if not_looked := [one["waits_for"] for one in waits["for"] if one["unknown"]]:
        yield f"Not looked for in a dry run: {', '.join(not_looked)}."
    if not names and not not_looked:
        yield "All data that its tasks wait for are there."


def wait_words(one: Mapping[str, Any]) -> str:
    """`partner.orders (12 items: table not found)`"""
    why = f": {one['problem']}" if one["problem"] else ""
    return f"{one['waits_for']} ({plural(one['missing'], 'item')}{why})"


def estimate_lines(estimate: Mapping[str, Any]) -> Iterator[str]:
    """What will be read, how long a run takes, when it will end; only what is known."""
    if estimate.get("rows") is not None:
        files = "" if estimate.get("files") is None else f" in {plural(estimate['files'], 'file')}"
        volume = "" if estimate.get("bytes") is None else f", {size(estimate['bytes'])}"
        yield f"They will read about {plural(estimate['rows'], 'row')}{files}{volume}."
    item, total = estimate.get("run_s") or {}, estimate.get("total_s")  # per item, also where several make one run
    end = f", until {estimate['finishes_at']}" if estimate.get("finishes_at") else ""
    whole = None if total is None else f"{humanise.estimate(total, padded=True)}{end}"
    if item.get("median") is not None:
        ends = [seconds(item[name]) for name in ("shortest", "longest") if name in item]
        span = f" ({' to '.join(ends)} so far)" if len(set(ends)) == 2 else ""
        yield f"An item takes {humanise.estimate(item['median'], padded=True)}{span}{f'; full range {whole}' if whole else ''}."
    elif whole:
        yield f"The full range takes {whole}."
    if unknown := estimate.get("unknown"):
        yield f"Unknown size: {', '.join(unknown)}."


def tree_lines(dag_id: str, summary: Mapping[str, Any], downstream: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each DAG below the one it waits for (the last of them, when there are several; the others are named)."""
    yield f"{dag_id}: {_counts_and_time(summary)}"
    below: dict[str, list[Mapping[str, Any]]] = {}
    for plan in downstream:
        waits_for = _names(plan["waits_for"])
        below.setdefault(waits_for[-1] if waits_for else dag_id, []).append(plan)
    yield from _branches(dag_id, below, "")


def _branches(dag_id: str, below: Mapping[str, Sequence[Mapping[str, Any]]], indent: str) -> Iterator[str]:
    children = below.get(dag_id, ())
    for number, plan in enumerate(children, start=1):
        last = number == len(children)
        others = [name for name in _names(plan["waits_for"]) if name != dag_id]
        also = f" (waits for {' and '.join(others)}, too)" if others else ""
        yield f"{indent}{'└─ ' if last else '├─ '}{plan['dag_id']}{also}: {_counts_and_time(plan['summary'])}"
        inner = indent + ("   " if last else "│  ")
        for line in wait_lines(plan["summary"].get("waits")):
            yield f"{inner}{'│  ' if plan['dag_id'] in below else '   '}{line}"
        yield from _branches(plan["dag_id"], below, inner)


def _counts_and_time(summary: Mapping[str, Any]) -> str:
    total = (summary.get("estimate") or {}).get("total_s")
    return plan_counts(summary) + (f", {humanise.estimate(total, padded=True)}" if total and summary["pending"] else "")


def _names(waits_for: Any) -> list[str]:
    return [waits_for] if isinstance(waits_for, str) else list(waits_for or ())


def _version(run: Mapping[str, Any]) -> str:
    return f"{run['dag_version']} → {run['to_version']}" if run["to_version"] else str(run["dag_version"])


def _states_of_tasks(run: Mapping[str, Any]) -> str:
    return ", ".join(f"{one['task_id']} ({one['state']})" for one in run["tasks"])


_RUN_COLUMNS: Final = ("dag_id", "run_id", Column("run_type", "type", optional=True), "state")
_CLEAR_COLUMNS: Final = (
    *_RUN_COLUMNS, Column("version", optional=True, of=_version), Column("tasks", fold=True, of=_states_of_tasks),
)  # fmt: skip


def _print_runs(out: Output, runs: Sequence[Mapping[str, Any]], columns: Sequence[Column | str]) -> None:
    out.print_rows(runs[:MAX_RUNS_SHOWN], columns)
    if more := len(runs[MAX_RUNS_SHOWN:]):
        out.print_line(f"… and {plural(more, 'more run')}; `--dry-run --output json` lists them all.")
    out.print_line("")


def print_clear_plan(out: Output, plan: Mapping[str, Any]) -> None:
    runs = plan["runs"]
    _print_runs(out, runs, _CLEAR_COLUMNS)
    out.print_line(f"{clear_summary(plan['summary']).capitalize()}.")
    if running := plan["summary"]["running"]:
        out.print_line(f"{running:,} of them {'is' if running == 1 else 'are'} running or about to: stopped first.")
    if stay := plan["summary"].get("stay_upstream_failed", 0):  # not in the plan of an older server
        names = sorted({task_id for run in runs for task_id in run["stays"]})
        shown = ", ".join([*names[:5], *(["…"] if len(names) > 5 else ())])
        out.print_line(
            f"{plural(stay, 'task')} downstream of them ({shown}) stay{'s' if stay == 1 else ''} upstream_failed, and so "
            "the runs failed; --downstream clears these, too."
        )
    _print_batches_left_out(out, plan)


def print_mark_plan(out: Output, plan: Mapping[str, Any]) -> None:
    runs, summary = plan["runs"], plan["summary"]
    _print_runs(out, runs, _RUN_COLUMNS)
    out.print_line(f"{plural(summary['runs'], 'run')} to be marked {plan['state']}.")
    if running := summary["running"]:
        out.print_line(f"{running:,} of them {'is' if running == 1 else 'are'} queued or running: stopped first.")
    if same := summary["unchanged"]:
        out.print_line(f"{plural(same, 'run')} {'has' if same == 1 else 'have'} that state already.")
    _print_batches_left_out(out, plan)


def _print_batches_left_out(out: Output, plan: Mapping[str, Any]) -> None:
    for run_id in plan.get("batches_left_out", ()):  # not in the plan of an older server
        out.print_line(
            f"Run {run_id} took some of these dates together with earlier ones, and is left as it is; a --from at its beginning "
            "takes it along."
        )


def clear_summary(summary: Mapping[str, int]) -> str:
    """`2 tasks of 1 run`"""
    return f"{plural(summary['tasks'], 'task')} of {plural(summary['runs'], 'run')}"
