"""Spans that the code of a task makes, in the process of the task."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from backfill_manager.execution.task_processes import task_spans


def test_a_try_that_makes_too_many_spans_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[dict[str, Any]] = []
    for name, value in {"MAX_SPANS": 2, "_deliver": None, "_left": 0}.items():
        monkeypatch.setattr(task_spans, name, value)
    for variable in (task_spans.TRACEPARENT, "OTEL_PYTHON_TRACER_PROVIDER"):
        monkeypatch.setenv(variable, "")
    task_spans.set_up(f"00-{7:032x}-{8:016x}-01", taken.append)
    tracer = task_spans.make_provider().get_tracer("test")
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            tracer.start_span(str(number)).end()
    assert [span["name"] for span in taken] == ["0", "1"]
    assert {span["parent_id"] for span in taken} == {f"{8:016x}"}
    assert [record.getMessage() for record in caplog.records] == [
        "This try has made more than 2 spans; further ones are not sent."
    ]
