"""What can be found of an interval of a table (`data_gaps.py`), each in words."""

from __future__ import annotations

from typing import Final, Literal

Finding = Literal["empty", "no_run", "rewritten", "outdated", "fewer_rows", "unknown"]
IN_WORDS: Final[dict[Finding, str]] = {
    "empty": "done but empty: a run has succeeded, and no row lies there",
    "no_run": "rows without a run: rows lie there, and no run has written them",
    "rewritten": "rewritten since by somebody else",
    "outdated": "outdated: an input has changed since it was read",
    "fewer_rows": "fewer rows than half of what is usual around it",
    "unknown": "it is not known, and why",
}
WROTE_NO_ROW: Final = (
    "a run has succeeded, and it wrote no row"  # why it is empty, and not missing: it would be empty again
)
FINDINGS: Final[tuple[Finding, ...]] = tuple(IN_WORDS)
