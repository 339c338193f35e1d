"""The queue of a table's writers: in order of arrival, appends together."""

from __future__ import annotations

import threading

import pytest

from backfill_manager.execution.output_table import TableQueue

PATIENCE = 60.0


@pytest.fixture
def queue() -> TableQueue:
    return TableQueue()


class Writer:
    """A thread that takes its turn and keeps it until `leave` is called."""

    def __init__(self, queue: TableQueue, *, shared: bool = False) -> None:
        self.has_turn, self._may_leave = threading.Event(), threading.Event()
        self._queue, self._shared = queue, shared
        waiting = len(queue._waiting)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        with queue._changed:  # it has come: it has its turn, or waits
            assert queue._changed.wait_for(
                lambda: self.has_turn.is_set() or len(queue._waiting) > waiting or self._took_it(), PATIENCE
            )

    def _took_it(self) -> bool:
        return bool(self._queue._sharing or self._queue._is_alone) and not self._queue._waiting

    def _write(self) -> None:
        self._queue.acquire(shared=self._shared)
        self.has_turn.set()
        assert self._may_leave.wait(PATIENCE)
        self._queue.release()

    def leave(self) -> None:
        assert self.has_turn.wait(PATIENCE)
        self._may_leave.set()
        self._thread.join(PATIENCE)


def test_writers_have_the_table_one_after_another_in_the_order_in_which_they_came(queue: TableQueue) -> None:
    writers = [Writer(queue) for _ in range(4)]
    for n, writer in enumerate(writers):
        assert writer.has_turn.wait(PATIENCE)
        assert not any(later.has_turn.is_set() for later in writers[n + 1 :])
        writer.leave()


def test_appends_have_it_together_and_pass_nobody_who_came_before(queue: TableQueue) -> None:
    one, other = Writer(queue, shared=True), Writer(queue, shared=True)
    assert one.has_turn.wait(PATIENCE) and other.has_turn.wait(PATIENCE)
    merge, late = Writer(queue), Writer(queue, shared=True)
    one.leave()
    assert not merge.has_turn.is_set() and not late.has_turn.is_set()
    other.leave()
    assert merge.has_turn.wait(PATIENCE) and not late.has_turn.is_set()
    merge.leave()
    late.leave()


def test_who_does_not_want_to_wait_is_told_so(queue: TableQueue) -> None:
    assert queue.acquire(blocking=False)
    assert not queue.acquire(blocking=False) and not queue.acquire(blocking=False, shared=True)
    queue.release()
    assert queue.acquire(blocking=False, shared=True) and queue.acquire(blocking=False, shared=True)
    assert not queue.acquire(blocking=False)
    waiting = Writer(queue)
    assert not queue.acquire(blocking=False, shared=True), "another one waits already"
    queue.release()
    queue.release()
    waiting.leave()


def test_it_is_free_again_after_an_error(queue: TableQueue) -> None:
    with pytest.raises(RuntimeError), queue:
        raise RuntimeError("the disk is full")
    assert queue.acquire(blocking=False)
