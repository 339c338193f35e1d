"""The process that finds out what one DAG file defines: `python -m ...dags.loading.parse_file ROOT FILE FD SECONDS LIMITS`.

The file is a stranger's code: it may print, hang, exit, crash. The answer goes to a pipe of its own (`FD`), as one
JSON document, and the process ends there, whatever threads the file has started. When there is no answer to give, the
C-level watchdog writes where the file was instead: it needs no help from the code that hangs or the interpreter that
crashed.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

from backfill_manager.dags.loading.import_failure import FailedFile, explain
from backfill_manager.errors import InvalidDag


def main(arguments: list[str]) -> None:
    root, file, pipe, seconds, limits = Path(arguments[0]), arguments[1], int(arguments[2]), arguments[3], arguments[4]
    os.set_inheritable(pipe, False)  # what the file starts shall not keep the pipe open
    faulthandler.enable(file=pipe)
    faulthandler.dump_traceback_later(float(seconds), exit=True, file=pipe)
    answer = json.dumps(answer_for(root, file, json.loads(limits))).encode()
    faulthandler.cancel_dump_traceback_later()
    while answer:
        answer = answer[os.write(pipe, answer) :]
    os._exit(0)


def answer_for(root: Path, file: str, limits: dict[str, int]) -> dict[str, Any]:
    """`{"dags": [definition, ...], "imported": [file, ...]}`, or `{"failed": {...}}`: all of the file or nothing."""
    from backfill_manager.dags.loading.bundle_imports import open_bundle

    bundle = open_bundle(root)
    try:
        made = bundle.dags_of(file)
        ids = [dag.dag_id for dag in made]
        twice = next((dag_id for dag_id in ids if ids.count(dag_id) > 1), None)
        if twice:
            raise InvalidDag(f"DAG {twice!r} is made twice in this file; give one of them another dag_id")
    except BaseException as error:  # noqa: BLE001 - a stranger's code may raise anything, SystemExit included
        return {"failed": dataclasses.asdict(explain(error, root, file))}
    specs = []
    for dag in made:
        unsaid: dict[str, Any] = {name: value for name, value in limits.items() if name not in dag.said}
        specs.append(dataclasses.replace(dag.spec, file=file, **unsaid))
    files = [getattr(module, "__file__", None) for module in bundle.modules()[1:]]
    imported = {Path(path).relative_to(root).as_posix() for path in files if path}
    return {"dags": [spec.to_json() for spec in specs], "imported": sorted(imported - {file})}


def failed_of(answer: dict[str, Any]) -> FailedFile:
    return FailedFile(**answer["failed"])


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # `-m` puts the current directory there; the manager's own path came in PYTHONPATH
    main(sys.argv[1:])
