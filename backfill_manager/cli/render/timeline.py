"""A drawn timeline: one line for each run in the order of logical dates, an arrow up to its previous run, and beneath a run
those that it overrode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backfill_manager.model import states

GLYPHS: Final[Mapping[str, str]] = {
    states.QUEUED: "◌", states.RUNNING: "◐", states.SUCCESS: "●", states.FAILED: "✗", states.CANCELLED: "⊘",
    states.OVERRIDDEN: "○",
}  # fmt: skip
FIRST, AFTER_LINE_ABOVE, AFTER_ANOTHER = "╷", "↑", "⇡"


def timeline_rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of a table: `drawn` is the drawing, `note` what it can't show."""
    above: str | None = None
    for run in runs:
        yield {**run, "drawn": f"{_arrow(run, above)} {GLYPHS[run['state']]}", "note": _note(run, above)}
        yield from _overridden(run["overridden"], "  ")
        above = run["run_id"]


def _overridden(overridden: Sequence[Mapping[str, Any]], indent: str) -> Iterator[dict[str, Any]]:
    for run in overridden:
        yield {**run, "drawn": f"{indent}╰{GLYPHS[run['state']]}", "note": "; ".join(_kind(run)) or None}
        yield from _overridden(run["overridden"], indent + "  ")


def _arrow(run: Mapping[str, Any], above: str | None) -> str:
    if run["previous_run_id"] is None:
        return FIRST
    return AFTER_LINE_ABOVE if run["previous_run_id"] == above else AFTER_ANOTHER


def _note(run: Mapping[str, Any], above: str | None) -> str | None:
    after = f"after {run['previous_run_id']}" if _arrow(run, above) == AFTER_ANOTHER else None
    return "; ".join((*_kind(run), *filter(None, [after]))) or None


def _kind(run: Mapping[str, Any]) -> Iterator[str]:
    if run["items"] > 1:
        yield f"{run['items']} intervals"
    if run["is_partial"]:
        yield "partial: only selected tasks ran"
