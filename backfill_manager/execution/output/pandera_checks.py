"""Schemas of the library pandera as checks: its half for PySpark looks at the rows, and each thing that it expects is a result.

pandera is optional (the extra `pandera`). It gives no numbers of rows that break an expectation, and no rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.errors import InvalidInput, nearest, shorten
from backfill_manager.schemas.checks import PanderaSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_PROBLEM_CHARS: Final = 500


def expectations_of(form: PanderaSchema, rows: DataFrame) -> dict[str, str | None]:
    """What the schema expects (`delay: greater_than_or_equal_to(-120)`), with what the rows break of it; None: it holds.
    `InvalidInput` where it can't be asked."""
    try:
        from pandera.config import ValidationDepth, config_context
    except ModuleNotFoundError:
        raise InvalidInput("pandera is not installed: pip install 'backfill-manager[pandera]'") from None
    schema = _schema(form)
    # Whatever is set outside of this task.
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        errors = schema.validate(rows).pandera.errors
    broken = dict(_broken(errors))
    return {**broken, **{name: None for name in _expected(schema, broken) if name not in broken}}


def _schema(form: PanderaSchema) -> Any:
    from pandera.pyspark import DataFrameModel, DataFrameSchema

    try:
        module = importlib.import_module(form.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{form.module}.".startswith(f"{error.name}."):
            raise  # it is there, and imports something that is not
        raise InvalidInput(f"there is no module {form.module} in the bundle") from None
    found = getattr(module, form.name, None)
    if isinstance(found, type) and issubclass(found, DataFrameModel):
        return found.to_schema()
    if not isinstance(found, DataFrameSchema):
        what = "is no DataFrameSchema or DataFrameModel of pandera.pyspark"
        if found is None:
            what = f"is not there{nearest(form.name, vars(module), n=1)}"
        raise InvalidInput(f"{form.name} of {form.module} {what}")
    return found


def _broken(errors: Mapping[str, Mapping[str, list[Mapping[str, Any]]]]) -> Iterator[tuple[str, str]]:
    for of_kind in errors.values():
        for found in of_kind.values():
            for one in found:
                problem = shorten(" ".join(str(one["error"]).split()), MAX_PROBLEM_CHARS)
                yield _name(one["column"], one["check"]), problem


def _expected(schema: Any, broken: Mapping[str, str]) -> Iterator[str]:
    """As the errors would name it; nothing of a column that is not there."""
    for name, column in schema.columns.items():
        if _name(name, "column_in_dataframe") in broken:
            continue
        if column.dtype is not None:
            yield _name(name, f"dtype('{column.dtype}')")
        if not column.nullable:
            yield _name(name, "not_nullable")
        yield from (_name(name, check.error or check.name) for check in column.checks)
    if schema.unique:
        yield _name(None, "unique")
    yield from (_name(None, check.error or check.name) for check in schema.checks)


def _name(column: Any, check: Any) -> str:
    return str(check) if column is None else f"{column}: {check}"
