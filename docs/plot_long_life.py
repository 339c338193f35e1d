"""Draws docs/images/long-life.svg from the table of the week in docs/reliability.md.

.venv/bin/python docs/plot_long_life.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent
FIRST_COLUMN: Final = "| end of day |"
COLUMNS: Final = 3
WIDTH, HEIGHT, LEFT, TOP = 300, 170, 20, 40  # of one figure, and its margins
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - 2 * LEFT, HEIGHT - TOP - 30


def drawn(table: dict[str, list[tuple[float, float]]]) -> str:
    """Each figure over the days, from zero."""
    rows = -(-len(table) // COLUMNS)
    size = f'viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<rect width="100%" height="100%" fill="#fff"/>')
    for number, (title, values) in enumerate(table.items()):
        at = f"translate({number % COLUMNS * WIDTH},{number // COLUMNS * HEIGHT})"
        parts.append(f'<g transform="{at}">{_figure(title, values)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _figure(title: str, values: list[tuple[float, float]]) -> str:
    days, highest = max(day for day, _ in values), max(value for _, value in values)

    def place(day: float, value: float) -> str:
        return f"{LEFT + PLOT_WIDTH * day / days:.1f},{TOP + PLOT_HEIGHT * (1 - value / highest):.1f}"

    line = " ".join(place(day, value) for day, value in values)
    bottom = TOP + PLOT_HEIGHT
    dots = "".join(
        f'<circle r="3" cx="{x}" cy="{y}" fill="#0b6bcb"/>' for x, y in (at.split(",") for at in line.split())
    )
    ticks = "".join(
        f'<text x="{LEFT + PLOT_WIDTH * day / days:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#666">{day}</text>'
        for day in range(round(days) + 1)
    )
    return (
        f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>'
        f'<text x="{WIDTH - LEFT}" y="18" text-anchor="end" fill="#666">max {highest:,.10g}</text>'
        f'<path d="M{LEFT},{TOP}H{WIDTH - LEFT}M{LEFT},{bottom}H{WIDTH - LEFT}" stroke="#ccc"/>{ticks}'
        f'<polyline points="{line}" fill="none" stroke="#0b6bcb" stroke-width="2"/>{dots}'
    )


def read_table(page: str) -> dict[str, list[tuple[float, float]]]:
    """Title of each column -> (day, value)."""
    head, _, *rows = page[page.index(FIRST_COLUMN) :].split("\n\n")[0].splitlines()
    _, *titles = _cells(head)
    found: dict[str, list[tuple[float, float]]] = {title: [] for title in titles}
    for row in rows:
        day, *values = (float(cell.replace(",", "")) for cell in _cells(row))
        for title, value in zip(titles, values, strict=True):
            found[title].append((day, value))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


if __name__ == "__main__":
    page = (DOCS / "reliability.md").read_text(encoding="utf-8")
    (DOCS / "images" / "long-life.svg").write_text(drawn(read_table(page)), encoding="utf-8")
