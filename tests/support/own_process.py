"""A process that serves one file or one try, as code of a bundle gets it: backfill_manager is loaded there, nothing else."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from textwrap import dedent
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["backfill_manager.dags.importing.task_code", "support.own_process"])
_names: dict[str, Any] = {}  # over there


class OwnProcess:
    """Runs programs one after another; a name that one sets, the next one has."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=_context)

    def run(self, program: str, **values: Any) -> Any:
        """The value of `result` after the program was run with the `values`. What it raises comes out."""
        return self._pool.submit(_run, dedent(program), values).result()

    def __enter__(self) -> OwnProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def _run(program: str, values: dict[str, Any]) -> Any:
    _names.update(values)
    exec(program, _names)
    return _names["result"]
