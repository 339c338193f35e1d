"""A table's log: who cleans it up and when, what a listing of it may show while others append, how a lost race shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from deltalake import PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError

# Of whatever commits in deltalake: the properties of the commit, and of what follows it.
CommitArguments = Mapping[str, Any]

# Clients leave checkpoints and the clean-up of the log to the leader, whose commits do both: of two processes that clean up at
# once, delta-rs fails in one, whose commit has landed.
OF_A_CLIENT: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
CLEAN_UP_EVERY: Final = 50  # commits: it lists the whole log, which on a disk costs 7 µs of CPU for each entry
_OF_A_LEADER: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
_CLEANING_UP: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)
_TORN: Final = ("Expected contiguous commit files", "Gap between checkpoint version")


def of_a_leader(version: int) -> PostCommitHookProperties:
    """For the commit after this version. A compaction cleans up as well."""
    return _CLEANING_UP if version % CLEAN_UP_EVERY == 0 else _OF_A_LEADER


def is_torn_listing(error: DeltaError) -> bool:
    """Of a log to which others append: a folder is not listed at one moment, so of two entries that are made meanwhile the
    listing may have the later one alone. A commit that ends so has not been made: entries are listed before it. (If it had,
    a request that is there twice would still be answered once.)"""
    return any(text in str(error) for text in _TORN)


def is_lost_race(error: DeltaError) -> bool:
    """Others were quicker: nothing was written."""
    return isinstance(error, CommitFailedError) or is_torn_listing(error)


@contextmanager
def unless_others_are_quicker() -> Iterator[None]:
    """For what can wait until the next time."""
    try:
        yield
    except DeltaError as error:
        if not is_lost_race(error):
            raise
