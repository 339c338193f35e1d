"""`LocalBackend`: reads the state tables by `queries`, submits by `requests`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from backfill_manager import queries
from backfill_manager.cli.backend.base import Document, Log
from backfill_manager.errors import StateNotInitialised
from backfill_manager.model.records import DagRun, Request, Response
from backfill_manager.model.states import BACKFILL_STATES, ITEM_STATES, RUN_FINISHED, RUN_STATES, TASK_STATES
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store
from backfill_manager.store.uri import is_catalog_schema

if TYPE_CHECKING:
    from backfill_manager.cli.context import CliContext
    from backfill_manager.queries.data_gaps import CountRows

# Who names one as the place of the state takes the global option for a filter.
_KNOWN_STATES: Final = frozenset({*TASK_STATES, *RUN_STATES, *ITEM_STATES, *BACKFILL_STATES})


class LocalBackend:
    def __init__(self, context: CliContext) -> None:
        self.context, self.clock = context, context.clock

    @cached_property
    def any_store(self) -> Store:
        """The store, whether its tables exist or not."""
        state = self.context.settings.state
        if not is_catalog_schema(state):
            store = open_store(state)
            store.read_copies()
            return store
        from backfill_manager.cli.backend.local_spark import start_spark

        return open_store(state, spark=start_spark(self.context))

    @cached_property
    def store(self) -> Store:
        """`StateNotInitialised` where the tables don't exist."""
        if not self.any_store.exists():
            missing = StateNotInitialised(self.context.settings.state)
            if self.context.state in _KNOWN_STATES:
                missing.hint = "state_is_a_place"
            raise missing
        return self.any_store

    def close(self) -> None:
        """Reading holds nothing open."""

    def has_active_manager(self) -> bool:
        return self.any_store.exists() and queries.managers.has_active_manager(self.any_store, self.clock.now())

    def manager(self) -> Document:
        return queries.managers.manager_status(self.store, self.clock.now())

    def backfills(self, *, dag_id: str | None, state: Sequence[str], limit: int | None) -> list[Document]:
        if dag_id is not None:
            queries.dags.known_dag(self.store, dag_id)
        return queries.backfills.list_backfills(
            self.store, queries.backfills.BackfillFilter(dag_id, state), limit=limit
        ).items

    def backfill(self, backfill_id: str, *, with_eta: bool = False) -> Document:
        """`with_eta`: with `time_left_s` and `finishes_at`, for which its runs must be read."""
        document = queries.backfills.find_backfill(self.store, backfill_id)
        return queries.eta.with_time_left(self.store, document, self.clock.now()) if with_eta else document

    def overrides(self, backfill_id: str) -> Document:
        """Of a backfill, with changes that wait for the manager."""
        found = queries.backfills.find_uncounted(self.store, backfill_id)
        return dict(queries.backfill_settings.settings_now(self.store, found).values["overrides"])

    def items(self, id: str, *, state: Sequence[str], limit: int | None = None, offset: int = 0) -> list[Document]:
        if not state:  # ordinals count from 1 without a gap
            return queries.backfill_items.list_items(self.store, id, after=offset or None, limit=limit).items
        limit = None if limit is None else limit + offset
        return queries.backfill_items.list_items(self.store, id, in_states=state, limit=limit).items[offset:]

    def running_tasks(self, backfill: Document) -> list[Document]:
        """Its task instances that run now, longest first, with `for_s` seconds."""
        return queries.tasks.running_tasks(self.store, backfill, self.clock.now())

    def dags(self, *, active: bool | None) -> list[Document]:
        """None: also those that are not active any more."""
        return queries.dags.list_dags(self.store, self.clock.now(), active=active)

    def dag(self, dag_id: str) -> Document:
        return queries.dags.show_dag(self.store, dag_id, self.clock.now())

    def next_intervals(self, dag_id: str, n: int) -> list[Document]:
        return queries.dags.next_intervals_of(self.store, dag_id, self.clock.now(), n)

    def render(self, dag_id: str, logical_date: str | None, **more: Any) -> Document:
        """What the tasks of a run by hand would see."""
        from backfill_manager.requests.rendering import rendered_run

        return rendered_run(self.store, dag_id, logical_date, self.clock.now(), **more)

    def import_errors(self) -> list[Document]:
        return queries.dags.list_import_errors(self.store)

    def versions(self, dag_id: str) -> list[Document]:
        return queries.versions.list_versions(self.store, dag_id)

    def version_diff(self, dag_id: str, before: int, after: int) -> Document:
        return queries.versions.diff_versions(self.store, dag_id, before, after)

    def timeline(self, dag_id: str, *, limit: int | None) -> list[Document]:
        # What ran can be read after its DAG is gone.
        if not self.store.read(DagRun, [Condition("dag_id", "=", dag_id)], limit=1):
            queries.dags.known_dag(self.store, dag_id)
        return queries.runs.timeline(self.store, dag_id, limit)

    def runs(
        self,
        *,
        dag_id: str | None,
        backfill_id: str | None,
        state: Sequence[str],
        run_type: str | None,
        limit: int | None,
    ) -> list[Document]:
        if dag_id is not None:
            queries.dags.known_dag(self.store, dag_id)
        if backfill_id is not None:
            backfill_id = queries.backfills.find_backfill(self.store, backfill_id)["backfill_id"]
        return queries.runs.list_runs(
            self.store, dag_id=dag_id, backfill_id=backfill_id, run_type=run_type, in_states=state, limit=limit
        ).items

    def run(self, run_id: str, *, dag_id: str | None) -> Document:
        return queries.runs.run_details(queries.named_run.find_run(self.store, run_id, dag_id=dag_id))

    def run_tasks(self, run: Document, task_id: str | None = None) -> Document:
        """`{"tasks": [...], "tries": [...]}` of a run, or of one of its tasks."""
        row = self.run_row(run)
        if task_id is not None:
            queries.tasks.find_task_instance(self.store, row, task_id)
        return {
            "tasks": queries.tasks.list_task_instances(self.store, row, task_id),
            "tries": queries.tasks.list_tries(self.store, row, task_id),
        }

    def checks(self, run: Document, task_id: str | None) -> list[Document]:
        row = self.run_row(run)
        if task_id is not None:
            queries.tasks.find_task_instance(self.store, row, task_id)
        return queries.tasks.list_check_results(self.store, row, task_id)

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log:
        row = self.run_row(run)  # before its lines: a run that has ended has its whole log
        state = queries.tasks.find_task_instance(self.store, row, task_id).state
        lines = queries.tasks.list_log_lines(self.store, row, task_id, try_number=try_number, after=after or (0, -1))
        return lines, state, row.state in RUN_FINISHED

    def pools(self) -> list[Document]:
        return queries.pools.list_pools(self.store)

    def pool_names(self) -> list[str]:
        """Without a state, those of the configuration."""
        from backfill_manager.requests.checked_payloads import pool_names

        return pool_names(self.any_store, self.context.settings)

    def tables(self) -> list[Document]:
        return queries.tables.list_tables(self.store)

    def table_intervals(self, table: str, *, limit: int | None) -> list[Document]:
        return list(queries.tables.list_table_intervals(self.store, table)[:limit])

    def lineage(self, *, dag_id: str | None = None, table: str | None = None) -> Document:
        return queries.tables.lineage(self.store, dag_id=dag_id, table=table)

    def gaps(self, dag_id: str, *, start_date: str | None, end_date: str | None, count: bool) -> list[Document]:
        """`count`: with Spark, which is started when a table's statistics do not tell its rows."""
        from backfill_manager.requests.data_gaps import gap_report

        with ExitStack() as held:
            counter = self._lazy_counter(held) if count else None
            return gap_report(self.store, dag_id, start_date, end_date, self.clock.now(), counter).to_json_document()

    def _lazy_counter(self, held: ExitStack) -> CountRows:
        from backfill_manager.cli.backend.local_spark import local_spark

        @cache
        def counter() -> CountRows:
            from backfill_manager.execution.inputs.interval_rows import rows_counter

            return rows_counter(held.enter_context(local_spark(self.context)))

        return lambda *table: counter()(*table)

    def bundles(self) -> list[Document]:
        return queries.bundles.list_bundles(self.store, self.context.settings.bundles)

    def requests(self, *, limit: int | None) -> list[Document]:
        return queries.requests.list_requests(self.store, limit=limit).items

    def notifications(self, *, limit: int | None, **filters: Any) -> list[Document]:
        chosen = queries.notifications.NotificationFilter(**filters)
        return queries.notifications.list_notifications(self.store, chosen, limit=limit).items

    def request(self, request_id: str) -> Document:
        return queries.requests.find_request(self.store, request_id)

    def submit(self, kind: str, values: Mapping[str, Any], request_id: str | None = None) -> Request:
        """Submits a command (`kind` as in the request table) with its fields as typed. What can be refused without the
        manager is refused here."""
        from backfill_manager.cli.backend.local_payloads import payload_of
        from backfill_manager.requests.submit import submit

        request_id = request_id or self.clock.new_id()
        payload = payload_of(self, kind, dict(values), request_id)
        return submit(self.store, self.clock, kind, payload, request_id=request_id)

    def dry_run(self, kind: str, values: Mapping[str, Any]) -> Document:
        """What a `backfill.create`, `tasks.clear` or `bundle.parse` would do."""
        from backfill_manager.cli.backend.local_payloads import dry_run_of

        return dry_run_of(self, kind, values)

    def wait(self, request: Request, timeout_s: float) -> Response | None:
        """The manager's response, or None when it has not come within so many seconds."""
        from backfill_manager.requests.submit import wait_for_response

        return wait_for_response(self.store, self.clock, request.request_id, timeout_s, pause=self.context.pause)

    def run_row(self, run: Mapping[str, Any]) -> DagRun:
        return queries.named_run.find_run(self.store, run["run_id"], dag_id=run["dag_id"])
