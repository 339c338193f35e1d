"""The names under which a value is a secret: `password`, `api_key`, `DB_PASS`; not `token_count`, nor `password_file`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Final

MASK: Final = "***"


class LazyPattern:
    """A regular expression that is compiled when it is first used: a light command uses few of these, and long ones take time."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._text)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._compiled.search(text, start)

    def sub(self, with_: str | Callable[[re.Match[str]], str], text: str) -> str:
        return self._compiled.sub(with_, text)

    def match(self, text: str, start: int) -> re.Match[str] | None:
        return self._compiled.match(text, start)


# What may follow in a name that is then about a secret, and holds none: `token_count`, `password_file`, `TokenError`.
_HARMLESS: Final = (
    "count", "counts", "length", "size", "limit", "type", "kind", "name", "file", "path", "dir", "url", "uri", "endpoint", "ttl",
    "expiry", "expires", "expired", "expires_in", "expires_at", "seconds", "scope", "provider", "policy", "version", "column",
    "field", "izer", "used", "usage", "budget", "required", "enabled", "arn", "error", "exception", "warning",
)  # fmt: skip
# Every part is bounded, so that a long text of somebody else's choice is read once, and not again from each of its words.
NAME: Final = (
    r"(?i:passw(?:or)?ds?|passphrases?|passcodes?|secrets?|tokens?|credentials?|authorization"
    r"|(?:api|access|account|private|secret|shared|signing|encryption|master)[_. -]?keys?"
    r"|(?:(?<=db)|(?<=key)|(?<=user)|(?<=root)|(?<=admin)|(?<=store))(?:pass|pwd)"
    r"|(?<![a-z0-9])(?:pwd?|sas)|(?<=[?&])sig(?==)|(?-i:Pwd)|(?<=[_-])pass|(?<![a-z0-9_.-])pass(?=[ ]?=)"
    r"|(?<=[\"'])pass(?=[\"']))(?![a-z])[\w.-]{0,100}(?![\w.-])" + "".join(f"(?<!(?i:{one}))" for one in _HARMLESS)
)
_SECRET_NAME: Final = LazyPattern(NAME)
# How each such name begins: these are looked for, which is fast, and the expressions that begin with a name are tried only there.
_BEGINS_NAME: Final = LazyPattern(
    "pass|secret|token|credential|authorization|api|access|account|private|shared|signing|encryption|master|pw|sas|sig"
)
_LOWER: Final = str.maketrans(  # as `(?i:...)` takes them
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ\u017f\u212a", "abcdefghijklmnopqrstuvwxyzsk"
)
HINTS: Final = (  # one is in each such name; `sig=` of a shared access signature in an address
    "pass", "secret", "token", "credential", "authorization", "key", "pw", "sas", "bearer", "cookie", "identified", "sig=",
    "mysql", "mariadb", "curl", "auth",
)  # fmt: skip
# Names that may also be of a number that is no secret.
COUNTS: Final = re.compile(r"(?i)(?:tokens|(?:^|[_-])pass)\W*$")
_KEY_VARIABLE: Final = re.compile(r"(?i)(?<!public_)(?<!partition_)(?<!primary_)(?<!foreign_)(?<!sort_)key(?:_id)?$")


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a value under this name is masked."""
    return _SECRET_NAME.search(name) is not None or name.lower() == "pass"


def starts_of_names(text: str) -> list[int]:
    """Where names begin that look secret; one may begin within another one."""
    lower = text.lower() if text.isascii() else text.translate(_LOWER)  # of the same length
    starts, found = [], _BEGINS_NAME.search(lower)
    while found:
        start = found.start()
        if _SECRET_NAME.match(text, start):
            starts.append(start)
        found = _BEGINS_NAME.search(lower, start + 1)
    return starts


@lru_cache(maxsize=4096)
def is_secret_variable(name: str) -> bool:
    return name != "PWD" and (is_secret(name) or _KEY_VARIABLE.search(name) is not None)
