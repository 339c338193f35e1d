"""Findings about an interval of a table (`data_gaps.py`), each in words."""

from __future__ import annotations

from typing import Final, Literal

Finding = Literal["empty", "no_run", "rewritten", "outdated", "fewer_rows", "unknown"]
IN_WORDS: Final[dict[Finding, str]] = {
    "empty": "done but empty: a run has succeeded, but the table has no rows there",
    "no_run": "rows without a run: the table has rows there that no run has written",
    "rewritten": "rewritten: somebody else has rewritten the rows since",
    "outdated": "outdated: an input has changed since it was read",
    "fewer_rows": "fewer rows: less than half of what is usual for it",
    "unknown": "unknown: it cannot be determined; the reason is given",
}
WROTE_NO_ROW: Final = (
    "a run has succeeded, and it wrote no row"  # why it is empty, and not missing: it would be empty again
)
FINDINGS: Final[tuple[Finding, ...]] = tuple(IN_WORDS)
