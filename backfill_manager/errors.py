"""The errors that are shown to people, by name.

One base class; the fields are the ids, the message is one or two lines that say what is wrong, where, and what would be
right. `exit_code` is what `bfm` ends with: 1 it was carried out and failed, 2 the input is wrong, 3 there is no such
thing, 4 the manager refused. Imports no other module of the package.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


def nearest(wrong: str, known: Iterable[str], n: int = 3) -> str:
    """`, did you mean 'flights'?`, or nothing when no known name is near."""
    near = difflib.get_close_matches(wrong, list(known), n=n, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def shorten(text: str, most: int) -> str:
    """The beginning of a text that has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def error_message(error: BaseException) -> str:
    """`str(error)`, also of an exception of somebody else's that can't say anything."""
    return str(traceback.TracebackException(type(error), error, None))


class BackfillManagerError(Exception):
    """Base of all errors that are shown to a person: a value with a code, which each interface words in its own terms.

    `code` names the situation, `field` the field of a command that is wrong (see `schemas.commands`), `hint` what could be
    done next (each interface has its own texts for hints). Made by an `ErrorTemplate`, it can be worded anew; otherwise the
    message stands as it is.
    """

    exit_code = 1

    def __init__(self, message: str = "", *, field: str | None = None, hint: str | None = None, **params: Any) -> None:
        super().__init__(message)
        self.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()
        self.field, self.hint = field, hint
        self.params: dict[str, Any] = params  # of the template and of the hint
        self.template: str | None = None
        self.prefix = ""

    def __str__(self) -> str:
        return self.worded(lambda field: field)

    def worded(self, name_of: Callable[[str], str]) -> str:
        """The message, with fields named as `name_of` says: `start_date`, `--from`, `"From"`."""
        if self.template is None:
            return self.prefix + super().__str__()

        def filled(part: re.Match[str]) -> str:
            field, param, as_repr = part.groups()
            if field:
                return name_of(self.field or "" if field == "field" else field)
            value = self.params[param]
            return repr(value) if as_repr else str(value)

        return self.prefix + _PLACEHOLDER.sub(filled, self.template)

    def prefixed(self, prefix: str) -> BackfillManagerError:
        self.prefix = prefix + self.prefix
        return self


_PLACEHOLDER = re.compile(r"\[([a-z_]+)\]|\{([a-z_]+)(!r)?\}")


class InvalidInput(BackfillManagerError):
    """A value from outside is not usable; the message names the value, its place and what would be right."""

    exit_code = 2


@dataclass
class ErrorTemplate:
    """A situation of the catalogue (`schemas.errors`); called with its values it makes the error. In the template `[field]`
    stands for the name of a field, `{param}` for a value, `{param!r}` for its `repr`. `field`: the wrong one; the first
    that the template names, unless it is given, here or (`[field]`) by the caller."""

    template: str
    field: str | None = None
    error: Callable[..., BackfillManagerError] = InvalidInput
    hint: str | None = None
    code: str = ""  # set by the catalogue

    def __post_init__(self) -> None:
        named = [match[1] for match in _PLACEHOLDER.finditer(self.template) if match[1]]
        if not self.field and named and "field" not in named:
            self.field = named[0]

    def __call__(self, *, field: str | None = None, hint: str | None = None, **params: Any) -> BackfillManagerError:
        error = self.error(self.template, field=field or self.field, hint=hint or self.hint)
        error.code, error.template, error.params = self.code, self.template, params
        return error


class InvalidSchedule(InvalidInput):
    """A cron expression, preset or duration that can't be a schedule, or one that never fires."""


class InvalidDag(InvalidInput):
    """A DAG file's mistake: a cycle, a task id used twice, an unknown trigger rule, a wrong setting."""


class InvalidConfig(InvalidInput):
    """conf/manager.yaml (or an environment override) holds a wrong key or value; every one is named with its place."""


class WrongJava(InvalidInput):
    """Java is missing or older than Spark needs."""


class StateError(InvalidInput):
    """The state can't be used as it is: not made yet, not writable, of a newer version, of another engine, corrupt."""


class StateUnavailable(StateError):
    """Storage did not let a table of the state be read or written: it is away, refuses access, or a file is damaged."""


class StateNotInitialised(StateError):
    def __init__(self, root: str) -> None:
        super().__init__(
            f"There is no state at {root}; a manager that starts there makes it.", hint="init_state", root=root
        )


class StateCopied(StateError):
    def __init__(self, root: str, other: str, how: str) -> None:
        super().__init__(
            f"The state at {root} was last led at {other}, which {how}. Two copies of one state would take each other's "
            "output for their own. Say which one goes on as what it was.",
            hint="adopt_state", root=root, other=other,
        )  # fmt: skip


class NotFound(BackfillManagerError):
    """`known`: the ids that exist, of which the nearest is offered; `more`: what to say when none is near."""

    exit_code = 3

    def __init__(
        self, kind: str, wanted: str, known: Iterable[str] = (), hint: str | None = None, *, more: str = "",
        field: str | None = None,
    ) -> None:  # fmt: skip
        near = nearest(wanted, known)
        super().__init__(field=field, hint=None if near else hint)
        self.template, self.params = NOT_FOUND, {"kind": kind, "id": wanted, "more": near or more or "."}


NOT_FOUND = "There is no {kind} {id!r}{more}"


class Ambiguous(InvalidInput):
    def __init__(self, kind: str, prefix: str, matches: Iterable[str]) -> None:
        shown = ", ".join(list(matches)[:5])
        super().__init__(f"{prefix!r} is the beginning of more than one {kind}: {shown}. Give more of it.")


class RunOfSeveralDags(Ambiguous):
    """A run's id, or a beginning of one, that runs of several DAGs have; `found` are their (DAG, run) ids."""

    def __init__(self, wanted: str, found: Iterable[tuple[str, str]]) -> None:
        self.found = list(found)
        names = [f"{dag_id}/{run_id}" for dag_id, run_id in self.found]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        InvalidInput.__init__(
            self, f"More than one run is called {wanted!r}: {', '.join(names[:4])}{more}. Name the DAG too: DAG/RUN."
        )


class Refused(BackfillManagerError):
    """The manager would not do what was asked; the message is a reason a person can act on."""

    exit_code = 4


class Unauthenticated(InvalidInput):
    """The server does not know the user: a token is missing, or is none of those that are configured."""


class Forbidden(Refused):
    """The server knows the user, who may not do this."""


class RateLimited(BackfillManagerError):
    """More requests at once than the server accepts; `retry_after_s` is when to try again."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NoActiveManager(BackfillManagerError):
    """The command needs a running manager, and there is none, or it does not respond."""


class Unreachable(BackfillManagerError):
    """No server responds at this address, or it is not a server of this package."""


class IllegalTransition(BackfillManagerError):
    """A change that the state machine does not allow: a bug, reported with the history of the row."""

    def __init__(self, kind: str, story: str, was: str, to: str) -> None:
        super().__init__(f"{kind} {story}: {was} -> {to} is not a legal transition")


class LostLease(BackfillManagerError):
    """Another manager leads now: the table's own protocol refused this one's commit. Stop at once."""


class StateLost(BackfillManagerError):
    """The state that a manager led can't be read or written any more: its storage is away, or it was damaged."""


class SparkGone(BackfillManagerError):
    """There is no Spark behind the session any more: its JVM has ended, or its SparkContext was stopped."""


class ServiceFailed(BackfillManagerError):
    """A service of the manager has ended by an exception: a bug of ours."""


class ChecksFailed(BackfillManagerError):
    """Checks of the rows that a task was about to publish have failed; nothing was written."""


class CheckFailedToRun(InvalidInput):
    """A check can't be run on the rows of a write: an unknown column, no condition, a division by zero; nothing was written."""


class AbandonedTry(BackfillManagerError):
    """A try that was timed out, cancelled or overtaken tried to write its output; nothing was written."""
