"""A Spark-native backfill and job manager with its state in Delta tables.

What a DAG file needs is here: `from backfill_manager import Param, dag, task, sql`. The names are looked up when they are
first used, so that `import backfill_manager` (which every command pays for) costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill_manager.dags.authoring import Dag as Dag
    from backfill_manager.dags.authoring import bash_task as bash_task
    from backfill_manager.dags.authoring import condition as condition
    from backfill_manager.dags.authoring import dag as dag
    from backfill_manager.dags.authoring import file as file
    from backfill_manager.dags.authoring import on as on
    from backfill_manager.dags.authoring import rows as rows
    from backfill_manager.dags.authoring import sql as sql
    from backfill_manager.dags.authoring import task as task
    from backfill_manager.schemas.checks import Check as Check
    from backfill_manager.schemas.params import Param as Param

__version__ = "0.1.0"

__all__ = ["Check", "Dag", "Param", "__version__", "bash_task", "condition", "dag", "file", "on", "rows", "sql", "task"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from backfill_manager.dags import authoring

        return getattr(authoring, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
