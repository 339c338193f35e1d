"""What people change of DAGs, bundles, pools and the manager itself."""

from __future__ import annotations

from backfill_manager.errors import NotFound, Refused, nearest
from backfill_manager.humanise import plural
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler
from backfill_manager.model.pools import too_many_slots
from backfill_manager.model.records import Manager
from backfill_manager.requests.submit import term_to_stop
from backfill_manager.schemas import commands
from backfill_manager.schemas.command import Command


class Administration:
    def __init__(self, state: ManagerState, lease: Manager) -> None:
        self._state, self._dags = state, state.catalog
        self._term, self._led_since = lease.term, lease.started_at
        self.handlers: dict[type[Command], Handler] = {
            commands.PauseDag: self._pause_dag, commands.UnpauseDag: self._pause_dag,
            commands.DeactivateDag: self._deactivate_dag, commands.DeactivateInBundle: self._deactivate_in_bundle,
            commands.SetPool: self._set_pool, commands.StandBy: self._stand_by, commands.StopManager: self._stop,
        }  # fmt: skip

    def _pause_dag(self, command: commands.PauseDag | commands.UnpauseDag, call: Call) -> Answer:
        paused = isinstance(command, commands.PauseDag)
        self._state.put(self._state.active_dag(command.dag_id).evolve(is_paused=paused, updated_at=call.now))
        return command.dag_id, f"DAG {command.dag_id} is {'paused' if paused else 'unpaused'}"

    def _deactivate_dag(self, command: commands.DeactivateDag, call: Call) -> Answer:
        row = self._dags.deactivate_dag(command.dag_id, by=call.by, at=call.now)
        return row.dag_id, f"DAG {row.dag_id} is inactive; its running tasks continue"

    def _deactivate_in_bundle(self, command: commands.DeactivateInBundle, call: Call) -> Answer:
        bundle, subpath = command.bundle, command.subpath
        if bundle not in self._dags.bundles:
            raise NotFound("bundle", bundle, self._dags.bundles)
        dag_ids = self._dags.deactivate_subpath(bundle, subpath, by=call.by, at=call.now)
        where = f"{subpath} of bundle {bundle}" if subpath else f"bundle {bundle}"
        if not dag_ids:
            return bundle, f"{where} has no active DAG"
        return bundle, f"{where}: {', '.join(dag_ids)} {'is' if len(dag_ids) == 1 else 'are'} inactive"

    def _set_pool(self, command: commands.SetPool, call: Call) -> Answer:
        name, pool = command.name, self._state.pools.get(command.name)
        if pool is None:
            raise Refused(
                f"There is no pool {name!r}{nearest(name, self._state.pools) or '.'} "
                "A new pool is made in the configuration file: Spark reads its pools when it starts."
            )
        given = command.model_dump(include={"memory_mb", "nice"}, exclude_unset=True)
        of_spark = command.model_dump(include={"slots", "weight", "min_share"}, exclude_none=True)
        changed = pool.evolve(**given, **of_spark)
        self._state.put(changed)
        call.tick.slots[name] = changed.slots
        is_same = (changed.weight, changed.min_share) == (pool.weight, pool.min_share)
        later = "" if is_same else "; weight and minimum share take effect when the manager restarts"
        memory, nice = changed.memory_mb, changed.nice
        limits = {
            "memory_mb": f"{memory:,} MB of memory a task" if memory else "no limit of memory",
            "nice": "the default nice" if nice is None else f"nice {nice}",
        }
        has = ", ".join([plural(changed.slots, "slot"), *(limits[field] for field in given)])
        if changed.slots > pool.slots and (warning := too_many_slots(self._state.pools.values())) is not None:
            later += f"; {warning}"
        return name, f"pool {name} has {has}{later}"

    def _stand_by(self, command: commands.StandBy, _: Call) -> Answer:
        return command.manager_id, f"term {self._term} leads; {command.host} stands by"

    def _stop(self, command: commands.StopManager, call: Call) -> Answer:
        term = term_to_stop(call.request.request_id)
        # Without a term only two clocks tell, which may differ: its client is of an older release.
        is_of_before = call.request.requested_at < self._led_since if term is None else term != self._term
        if is_of_before:  # that one has ended unasked, or the state was restored
            raise Refused(f"It was requested of a manager before; that of term {self._term} leads since.")
        call.tick.stop, call.tick.drain = True, command.drain
        return None, "stopping" + (" when running tasks have finished" if command.drain else "")
