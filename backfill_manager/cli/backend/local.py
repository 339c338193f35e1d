"""The source of commands that read the state themselves: `views` for what there is, `requests` for what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from backfill_manager.cli.backend.base import BackfillAction, Document, Log, RunMark, TaskMark
from backfill_manager.cli.commands.creating import Wish, ask_for
from backfill_manager.cli.context import CliContext
from backfill_manager.model.records import DagRun, Request, Response
from backfill_manager.model.states import RUN_FINISHED
from backfill_manager.queries import (
    backfills,
    bundles,
    dags,
    pools,
    requests,
    runs,
    tasks,
    versions,
)
from backfill_manager.queries.backfill_items import list_items
from backfill_manager.queries.backfills import BackfillFilter
from backfill_manager.queries.eta import with_time_left
from backfill_manager.queries.managers import has_active_manager, manager_status
from backfill_manager.queries.runs import timeline
from backfill_manager.queries.tasks import running_tasks
from backfill_manager.requests import command_types, submit, validation
from backfill_manager.requests.clearing import ClearTasks
from backfill_manager.store.base import Condition, Store


class LocalBackend:
    def __init__(self, call: CliContext) -> None:
        self._call, self._clock = call, call.clock

    @property
    def _store(self) -> Store:
        """The state must have been made, for all but what can do without."""
        return self._call.store

    def close(self) -> None:
        """Reading holds nothing open."""

    # -- what there is ------------------------------------------------------------------------------------------------
    def has_active_manager(self) -> bool:
        store = self._call.any_store
        return store.exists() and has_active_manager(store, self._clock.now())

    def manager(self) -> Document:
        return manager_status(self._store, self._clock.now())

    def backfills(self, *, dag_id: str | None, in_states: Sequence[str], limit: int | None) -> list[Document]:
        if dag_id is not None:
            dags.known_dag(self._store, dag_id)
        return backfills.list_backfills(self._store, BackfillFilter(dag_id, in_states), limit=limit).items

    def backfill(self, wanted: str, *, time_left: bool = False) -> Document:
        found = backfills.find_backfill(self._store, wanted)
        return with_time_left(self._store, found, self._clock.now()) if time_left else found

    def items(
        self, backfill_id: str, *, in_states: Sequence[str] = (), limit: int | None = None, offset: int = 0
    ) -> list[Document]:
        if not in_states:  # ordinals count from 1 without a gap
            return list_items(self._store, backfill_id, after=offset or None, limit=limit).items
        most = None if limit is None else limit + offset
        return list_items(self._store, backfill_id, in_states=in_states, limit=most).items[offset:]

    def running_tasks(self, backfill: Document) -> list[Document]:
        return running_tasks(self._store, backfill, self._clock.now())

    def dags(self, *, active: bool | None = True) -> list[Document]:
        return dags.list_dags(self._store, self._clock.now(), active=active)

    def dag(self, dag_id: str) -> Document:
        return dags.show_dag(self._store, dag_id, self._clock.now())

    def next_intervals(self, dag_id: str, n: int) -> list[Document]:
        return dags.next_intervals_of(self._store, dag_id, self._clock.now(), n)

    def import_errors(self) -> list[Document]:
        return dags.list_import_errors(self._store)

    def versions(self, dag_id: str) -> list[Document]:
        return versions.list_versions(self._store, dag_id)

    def version_diff(self, dag_id: str, before: int, after: int) -> Document:
        return versions.diff_versions(self._store, dag_id, before, after)

    def timeline(self, dag_id: str, limit: int | None) -> list[Document]:
        return timeline(self._store, self._ever_a_dag(dag_id), limit)

    def runs(
        self, *, dag_id: str | None, backfill: str | None, in_states: Sequence[str], limit: int | None
    ) -> list[Document]:
        if dag_id is not None:
            dags.known_dag(self._store, dag_id)
        backfill_id = backfills.find_backfill(self._store, backfill)["backfill_id"] if backfill else None
        page = runs.list_runs(self._store, dag_id=dag_id, backfill_id=backfill_id, in_states=in_states, limit=limit)
        return page.items

    def run(self, wanted: str, dag_id: str | None) -> Document:
        return runs.run_details(runs.find_run(self._store, wanted, dag_id=dag_id))

    def tasks_of(self, run: Document) -> Document:
        row = self._row(run)
        return {"tasks": tasks.list_task_instances(self._store, row), "tries": tasks.list_tries(self._store, row)}

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log:
        row = self._row(run)  # before its lines: a run that has ended has its whole log
        state = tasks.find_task_instance(self._store, row, task_id).state
        lines = tasks.list_log_lines(self._store, row, task_id, try_number=try_number, after=after or (0, -1))
        return Log(lines, state, row.state in RUN_FINISHED)

    def pools(self) -> list[Document]:
        return pools.list_pools(self._store)

    def bundles(self) -> list[Document]:
        return bundles.list_bundles(self._store, self._call.settings.bundles)

    def requests(self, limit: int | None) -> list[Document]:
        return requests.list_requests(self._store, limit=limit).items

    def request(self, wanted: str) -> Document:
        return requests.find_request(self._store, wanted)

    # -- what can be asked --------------------------------------------------------------------------------------------
    def response_to(self, request: Request, patience_s: float) -> Response | None:
        pause = self._call.pause
        return submit.wait_for_response(self._store, self._clock, request.request_id, patience_s, pause=pause)

    def create_backfill(self, wish: Wish, request_id: str | None) -> Request:
        request_id = request_id or self._clock.new_id()
        ask = ask_for(wish, dags.current_dag(self._store, wish.dag_id)[1])
        payload = validation.new_backfill(
            self._store, self._call.settings, ask, submit.id_from(request_id), self._clock.now()
        )
        return self._ask(command_types.BACKFILL_CREATE, payload, request_id)

    def plan_backfill(self, wish: Wish) -> Document:
        from backfill_manager.cli.backend.local_dry_run import plan

        return plan(self._call, wish)

    def steer_backfill(self, wanted: str, how: BackfillAction, **more: Any) -> Request:
        found = backfills.find_backfill(self._store, wanted)
        about = validation.retried_backfill(found) if how == "retry" else validation.going_on(found, how)
        return self._ask(f"backfill.{how}", {**about, **more})

    def change_backfill(self, backfill: Document, changes: Document) -> Request:
        payload = validation.changed_backfill(self._store, self._call.settings, backfill, changes)
        return self._ask(command_types.BACKFILL_SET, payload)

    def steer_dag(self, dag_id: str, how: Literal["pause", "unpause", "deactivate"]) -> Request:
        return self._ask(f"dag.{how}", {"dag_id": dags.current_dag(self._store, dag_id)[0].dag_id})

    def parse_bundle(self, bundle: str, subpath: str, *, dry_run: bool, deactivate_removed: bool) -> Request:
        payload = {"subpath": subpath, "dry_run": dry_run, "deactivate_removed": deactivate_removed}
        return self._ask(command_types.BUNDLE_PARSE, {"bundle": self._bundle(bundle), **payload})

    def parse_here(self, bundle: str, subpath: str, *, deactivate_removed: bool) -> Document:
        from backfill_manager.cli.backend.local_parse import parse

        return parse(self._call, bundle, subpath, deactivate_removed=deactivate_removed)

    def deactivate_in_bundle(self, bundle: str, subpath: str) -> Request:
        return self._ask(command_types.BUNDLE_DEACTIVATE, {"bundle": self._bundle(bundle), "subpath": subpath})

    def trigger(self, dag_id: str, logical_date: str | None, conf: Document, *, allow_future: bool) -> Request:
        now = self._clock.now()
        payload = validation.triggered_dag(self._store, dag_id, logical_date, conf, now, allow_future=allow_future)
        return self._ask(command_types.DAG_TRIGGER, payload)

    def cancel_run(self, run: Document) -> Request:
        return self._ask(command_types.RUN_CANCEL, validation.cancelled_run(self._row(run)))

    def mark_run(self, run: Document, state: RunMark) -> Request:
        return self._ask(command_types.RUN_MARK, validation.marked_run(self._row(run), state))

    def mark_task(self, run: Document, task_id: str, state: TaskMark) -> Request:
        return self._ask(command_types.TASK_MARK, validation.marked_task(self._store, self._row(run), task_id, state))

    def plan_clear(self, ask: ClearTasks) -> Document:
        from backfill_manager.planning.clear_plan import plan_clear

        known = validation.with_whole_run_ids(self._store, ask)
        return plan_clear(
            self._store, known, dags.all_dags(self._store), dags.spec_reader(self._store)
        ).to_json_document()

    def clear(self, ask: ClearTasks) -> Request:
        return self._ask(
            command_types.TASKS_CLEAR, {"ask": validation.with_whole_run_ids(self._store, ask).to_payload()}
        )

    def set_pool(self, name: str, slots: int, weight: int | None, min_share: int | None) -> Request:
        payload = validation.set_pool(self._store, name, slots=slots, weight=weight, min_share=min_share)
        return self._ask(command_types.POOL_SET, payload)

    # -- inside -------------------------------------------------------------------------------------------------------
    def _ask(self, kind: str, payload: Document, request_id: str | None = None) -> Request:
        return submit.submit(self._store, self._clock, kind, payload, request_id=request_id)

    def _bundle(self, name: str) -> str:
        """A manager that leads knows its bundles best: its configuration may be another one than ours."""
        return name if self.has_active_manager() else validation.known_bundle(self._store, self._call.settings, name)

    def _row(self, run: Document) -> DagRun:
        return runs.find_run(self._store, run["run_id"], dag_id=run["dag_id"])

    def _ever_a_dag(self, dag_id: str) -> str:
        """If it is or ever was there: what ran can be read after its DAG is gone."""
        if not self._store.read(DagRun, [Condition("dag_id", "=", dag_id)], limit=1):
            dags.known_dag(self._store, dag_id)
        return dag_id
