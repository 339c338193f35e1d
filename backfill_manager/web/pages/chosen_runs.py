"""Runs that a selection has chosen, as hidden fields of the forms that clear or mark them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from backfill_manager.humanise import plural
from backfill_manager.number_ranges import count_numbers, read_ranges
from backfill_manager.schemas.commands import ChosenRuns

LongText = Annotated[str, Field(max_length=400_000)]
MAX_NAMED = 4  # ranges or ids in a sentence


class Chosen(BaseModel):
    """`dates` and `items` are joined by commas, `runs` by the ends of lines: a run's id may hold any other character."""

    dates: LongText = ""
    runs: LongText = ""
    backfill: Annotated[str, Field(max_length=200)] = ""
    items: LongText = ""

    @property
    def is_chosen(self) -> bool:
        return bool(self.dates or self.runs or self.backfill)

    def values(self) -> dict[str, Any]:
        """As fields of `schemas.commands.ChosenRuns`."""
        return {
            "dates": tuple(part for part in self.dates.split(",") if part),
            "run_ids": tuple(line for line in self.runs.splitlines() if line),
            "backfill_id": self.backfill or None,
            "items": tuple(part for part in self.items.split(",") if part),
        }

    def hidden(self) -> dict[str, str]:
        """The fields that a form repeats."""
        fields = {"dates": self.dates, "runs": self.runs, "backfill": self.backfill, "items": self.items}
        return {name: text for name, text in fields.items() if text}

    def described(self) -> str:
        """`items 3 to 6 and 9 of backfill 0a1b`, shortened where they are many."""
        command = ChosenRuns.parse(self.values())
        if command.backfill_id:
            of_it = f"backfill {command.backfill_id}"
            if not command.items:
                return f"all items of {of_it}"
            n = count_numbers(read_ranges(command.items))
            return f"{plural(n, 'item')} of {of_it}: {_listed([part.replace('-', ' to ') for part in command.items])}"
        if command.dates:
            return _listed([part.replace("/", " to ") for part in command.dates])
        return f"{plural(len(command.run_ids), 'run')}: {_listed(command.run_ids)}"


def _listed(parts: Any) -> str:
    more = len(parts) - MAX_NAMED
    return ", ".join(parts[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
