"""What becomes of exceptions in threads of services; services themselves are tested where they are used."""

from __future__ import annotations

import threading

import pytest

from backfill_manager.service import ServicePool


def test_an_exception_of_a_call_is_reported_under_the_name_of_its_pool() -> None:
    failures: list[tuple[str, BaseException]] = []
    pool = ServicePool("commits", 2, on_failure=lambda name, error: failures.append((name, error)))
    error = KeyError("a bug")

    def fails(what: str) -> None:
        assert what == "an argument"
        raise error

    pool.call(fails, "an argument")
    pool.call(lambda: "all is well")
    pool.close()
    assert failures == [("commits", error)]


def test_an_exception_that_nobody_wants_reported_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pool = ServicePool("commits", 1)
    pool.call(lambda: 1 / 0)
    pool.close()
    assert "ZeroDivisionError" in caplog.text


def test_at_its_end_calls_that_wait_are_made() -> None:
    made: list[int] = []
    pool = ServicePool("reads", 1, set_up=lambda: made.append(0))
    may_go_on = threading.Event()
    pool.call(may_go_on.wait)
    pool.call(made.append, 1)
    may_go_on.set()
    pool.close()
    assert made == [0, 1]
