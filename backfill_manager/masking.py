"""Removes secrets from what is printed, logged or shown: values under names that look secret, passwords in URLs, and the values
of such variables of the environment.

Texts (log lines, errors, reasons) are stored masked. Values that a task works with (`conf`, params, results) are stored as they
are and masked wherever they are shown; `unmask` takes such a value back from whoever was shown it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

from backfill_manager.sql_masking import mask_sql

MASK: Final = "***"


@dataclass(frozen=True, repr=False)
class NamedSecret:
    """A value that is a secret for certain, as `ctx.secret` gives it out: it is masked however short or common it is."""

    value: str

    def __repr__(self) -> str:
        return f"NamedSecret({MASK})"


Known = str | NamedSecret  # a value that is masked wherever it stands
_of_this_process: tuple[Known, ...] = ()


def hide(value: str) -> None:
    """From now on this process masks it, in all that it masks: for the process of one try."""
    global _of_this_process
    _of_this_process = tuple(dict.fromkeys((*_of_this_process, *known_of(value))))


def known_of(value: str) -> tuple[Known, ...]:
    """What is masked of a secret: the value, and where it is a JSON document, what stands there under names that look secret."""
    try:
        document = json.loads(value) if value.lstrip()[:1] in ("{", "[") else None
    except ValueError:
        document = None
    return (NamedSecret(value), *secrets_in(document)) if value.strip() else ()


class _Pattern:
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
_NAME: Final = (
    r"(?i:passw(?:or)?ds?|passphrases?|passcodes?|secrets?|tokens?|credentials?|authorization"
    r"|(?:api|access|account|private|secret|shared|signing|encryption|master)[_. -]?keys?"
    r"|(?:(?<=db)|(?<=key)|(?<=user)|(?<=root)|(?<=admin)|(?<=store))(?:pass|pwd)"
    r"|(?<![a-z0-9])(?:pwd?|sas)|(?<=[?&])sig(?==)|(?-i:Pwd)|(?<=[_-])pass|(?<![a-z0-9_.-])pass(?=[ ]?=)"
    r"|(?<=[\"'])pass(?=[\"']))(?![a-z])[\w.-]{0,100}(?![\w.-])" + "".join(f"(?<!(?i:{one}))" for one in _HARMLESS)
)
_SECRET_NAME: Final = _Pattern(_NAME)
# How each such name begins: these are looked for, which is fast, and the expressions that begin with a name are tried only there.
_BEGINS_NAME: Final = _Pattern(
    "pass|secret|token|credential|authorization|api|access|account|private|shared|signing|encryption|master|pw|sas|sig"
)
_LOWER: Final = str.maketrans(  # as `(?i:...)` takes them
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ\u017f\u212a", "abcdefghijklmnopqrstuvwxyzsk"
)
_HINTS: Final = (  # one is in each such name; `sig=` of a shared access signature in an address
    "pass", "secret", "token", "credential", "authorization", "key", "pw", "sas", "bearer", "cookie", "identified", "sig=",
    "mysql", "mariadb", "curl", "auth",
)  # fmt: skip
_QUOTED: Final = r"""(?P<quote>"{3}|'{3}|["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n])*)(?P=quote)"""
# A value without quotes goes on after a comma (a list, a password that has one), unless another name begins there, or it is
# no secret itself; and after a quotation mark within a word.
_MORE: Final = r"""(?:,[^\s,;&'"=:()\[\]{}]+(?![^\s,;&'")\]}])|['"]\w[^\s,;&'")\]}]*)"""
_NO_LIST: Final = r"(?!(?i:none|null|true|false|str|bytes|[\d._]+),)"
_VALUE: Final = (
    rf"""(?:[A-Za-z_][\w.]{{0,60}}\()?[bfru]{{0,2}}{_QUOTED}|\\{{1,8}}(?P<escaped>["'])[^"'\\\n]{{0,4000}}\\{{1,8}}(?P=escaped)|["'][^\s"']+"""
    rf"""|\[[^\[\]]{{0,2000}}\]|\{{[^{{}}]{{0,2000}}\}}|{_NO_LIST}[^\s,;&'"]*[^\s,;&'")\]}}]{_MORE}*|[^\s,;&'"]*[^\s,;&'")\]}}]"""
)
_NAMED: Final = _Pattern(
    rf"""(?P<before>{_NAME}(?:\\{{0,8}}["'`])?\]?[ \t]{{0,9}}(?:=>|:=|={{1,3}}|:|%3[ADad])[ \t]{{0,9}}"""
    rf"(?:(?i:bearer|basic|token|digest|apikey|negotiate|ntlm|shared\w{{1,20}})[ \t]{{1,9}})?)(?P<value>{_VALUE})"
)
_NAMED_LITERAL: Final = _Pattern(
    rf"""(?P<before>{_NAME}["'`]?\]?[ \t]{{0,9}}(?:=>|={{1,3}}|:)[ \t]{{0,9}}[bfru]{{0,2}})(?P<value>{_QUOTED})"""
)
# What something secret is compared with, and what is named so: `token <> 'x'`, `token IN ('x', 'y')`, `'x' AS token`.
_COMPARED: Final = _Pattern(
    rf"""(?P<before>{_NAME}["'`]?\]?\)?[ \t]{{0,9}}(?:!={{1,2}}|<>|<=>|(?i:(?:not[ ])?[ir]?like)(?=[ '"]))"""
    rf"""[ \t]{{0,9}}[bfru]?)(?P<value>{_QUOTED})"""
)
_AMONG: Final = _Pattern(
    rf"""(?P<before>{_NAME}["'`]?\]?[ \t]{{1,9}}(?i:not[ ])?(?i:in)[ \t]{{0,9}})"""
    r"""(?P<value>[(\[]\s{0,9}["'][^()\[\]]{0,2000}[)\]])"""
)
_ALIASED: Final = _Pattern(
    r"""(?P<value>(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n]){0,200})(?P=quote))"""
    rf"""(?P<after>\s{{1,9}}(?i:as)\s{{1,9}}[`"]?[\w.-]{{0,40}}?{_NAME})"""
)
# In a plan of Spark, which has no quotation marks: `(lower(token#12) = x)`.
_IN_PLAN: Final = _Pattern(
    rf"""(?P<before>{_NAME}\#\d{{1,9}}L?\){{0,9}}[ ](?:=|<=>|<|>|<=|>=|(?:NOT[ ])?(?:IN|(?:R|I)?LIKE))[ ]"""
    r"""(?:[a-z]\w{0,40}\(){0,9})"""
    r"""(?P<value>\([^()]{1,2000}\)|[^\s()#,]{1,500}(?![^\s()#,]*\#\d))"""
)
# Without a sign between name and value: `('password', 'x')`, `--password x`, `password 'x'` of SQL, `<password>x<`.
_PAIR: Final = _Pattern(
    rf"""(?P<before>(?:(?P<pair>\(\s{{0,9}}[bfru]?["'])|["']--?)[\w.-]{{0,40}}?{_NAME}["']\s{{0,9}},\s{{0,9}}[bfru]?)"""
    rf"""(?P<value>{_QUOTED})(?(pair)(?=\s{{0,9}}\)))"""
)
_AUTH: Final = _Pattern(
    rf"""(?P<before>\bauth[ ]?=[ ]?\(\s{{0,9}}["'][^"'\n]{{0,200}}["']\s{{0,9}},\s{{0,9}})(?P<value>{_QUOTED})"""
)
_BEHIND: Final = _Pattern(rf"""(?i:(?P<before>(?!(?<!\w)tokens?\W){_NAME}["'`]?\s{{1,9}}))(?P<value>{_QUOTED})""")
_IDENTIFIED: Final = _Pattern(rf"(?i:(?P<before>(?<!\w)identified[ ]by\s{{1,9}}))(?P<value>{_QUOTED})")
_OPTION: Final = _Pattern(
    r"""(?P<before>(?:(?<![\w-])--?[\w.-]{0,40}?|(?<![\w.-])(?:spark|fs)\.[\w.-]{0,80}?)"""
    rf"""{_NAME}[ \t]{{1,9}})(?P<value>{_QUOTED}|"""
    r"(?!(?:is|are|was|has|must|not|and|or|in|to|for|with|needs?|requires?|options?|arguments?|expected)\b)[^\s\"'-](?:\S*[^\s\"')\]},;])?)"
)
# A line of two cells, as settings are copied from tables; not the head of a table, nor a column with its type.
_TABBED: Final = _Pattern(
    rf"""(?P<before>(?m:^)[ \t]{{0,40}}[\w.-]{{0,40}}?{_NAME}[ ]{{0,9}}\t[ \t]{{0,9}})"""
    r"(?!(?i:values?|names?|types?|kinds?|users?|roles?|scopes?|status|states?|owners?|e-?mails?|hosts?|ids?|counts?|rows|uses|length"
    r"|descriptions?|comments?|notes?|defaults?|required|optional|created|updated|expires|dates?|times?|string|(?:var)?char|binary"
    r"|(?:tiny|small|big)?int|integer|long|double|float|decimal|boolean|timestamp|array|map|struct)\b)"
    r"(?P<value>[^\s\"']+)(?=[ \t]{0,9}\r?(?:\n|\Z))"
)
# `password: |` of YAML, whose value is the lines below it that are indented more; as a text of Python or JSON writes it, too.
_BLOCK_MARK: Final = re.compile(r":[ \t]{1,9}(?:[!&]\S{1,100}[ \t]{1,9})?[|>][+-]?\d?[+-]?(?:[ \t]+#.*|\s*)\Z")
_KEY_OF_BLOCK: Final = re.compile(rf"""{_NAME}["']?[ \t]{{0,9}}\Z""")
_KEY_ALONE: Final = re.compile(r"""[ ]*(?:[-?][ ]+)*(?=["']?[\w. -]{1,120}["']?[ \t]*\Z)""")
_END_OF_LINE: Final = re.compile(r"(\n|\\{1,8}n)")
_END_OF_TEXT: Final = re.compile(r"""(?<!\\)["']|\Z""")
# Options that have no such name: `mysql -px`, `sshpass -p x`, `curl -u user:x`.
_COMMANDS: Final = (
    _Pattern(r"(\b(?:mysql|mariadb)\w{0,20}\b[^\n|;]{0,200}? -p)[^\s'\"]+"),
    _Pattern(r"(\bsshpass -p ?['\"]?)[^\s'\"]+"),
    _Pattern(r"(\bcurl\b[^\n|;]{0,500}? (?:-u|--user)[ =]?['\"]?[^\s:'\"]{1,200}:)[^\s'\"]+"),
)
_ELEMENT: Final = _Pattern(rf"(<(?:\w{{1,40}}:)?[\w.-]{{0,40}}?{_NAME}>)[^<]+")
_COOKIE: Final = _Pattern(r"(?i)(\bcookie['\"]?:[ \t]{0,9}['\"]?)[^\n'\"]+")
_BEGIN_KEY: Final = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# Not where `OpenValues` has masked its lines, each by itself.
_PRIVATE_KEY: Final = _Pattern(
    rf"({_BEGIN_KEY})(?!(?:\s{{1,99}}\*{{3}}){{1,60}}\s{{1,99}}-----END)(?:(?:(?!-----(?:BEGIN|END))[\s\S])+(?=-----END)|[^-]+)"
)
# What may stand on a line of a key: base64, `Proc-Type: 4,ENCRYPTED`, nothing; as a comment or a text of code, too.
_LINE_OF_KEY: Final = re.compile(
    r"(?:\#|--)?\s?[\"']?(?:[A-Za-z0-9+/=]+|[A-Za-z-]{1,40}: [^\n]{0,200})?(?:\\n)?[\"',]{0,4}"
)
_BEGINS_KEY: Final = _Pattern(rf"{_BEGIN_KEY}[^\n]*\Z")
# A value in quotation marks that do not end on their line.
_OPEN: Final = _Pattern(
    rf"""(?P<before>{_NAME}["'`]?\]?[ \t]{{0,9}}(?:=>|:=|={{1,3}}|:)[ \t]{{0,9}}[bfru]{{0,2}}"""
    r"""(?P<quote>"{3}|'{3}|["']))(?P<rest>(?:\\.|(?!(?P=quote))[^\\])*)\\?\Z"""
)
# `password: first`, alone on its line: lines below it that are indented more go on with the value.
_PLAIN: Final = re.compile(
    r"""(?P<before>[ ]*(?:[-?][ ]+)*)["']?(?P<key>[\w.-]{1,120})["']?:[ ]+[^\s"'|>&*!{\[#%@`].*\Z"""
)
_GOES_ON: Final = re.compile(r"(?![\w.-]+:(?:\s|\Z)|-\s|at\s|File\s).+")
_MAX_OPEN: Final = 60  # lines of one value: its end may be missing
_ORACLE: Final = _Pattern(r"(?i)(jdbc:oracle:\w{1,9}:[^/\s]{1,100}/)[^@\s]+(?=@)")
_TEXT_OF_CODE: Final = _Pattern(rf"""\"{{3}}[\s\S]*?\"{{3}}|'{{3}}[\s\S]*?'{{3}}|{_QUOTED}|(?:\#|--)[^\n]*""")
_SQL_FILE: Final = re.compile(
    r"(?i)(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*(?:select|with|merge|insert|update|delete|create|alter|set)\b"
)
_BEARER: Final = _Pattern(r"(?i)(\bbearer[ \t]{1,9})(?!tokens?\b|auth)[^\s,;&'\")\]}]+")
_NOT_SECRET: Final = re.compile(r"(?i)(?:none|null|true|false|str|bytes|\*{3})[)\]}]*|")
_PLACE: Final = re.compile(r"\{[A-Za-z_][\w.]*(?:![rsa])?\}")
_NUMBER: Final = re.compile(r"[\d.,_]+")
# Names that may also be of a number that is no secret.
_COUNTS: Final = re.compile(r"(?i)(?:tokens|(?:^|[_-])pass)\W*$")
_WORKING_DIRECTORY: Final = re.compile(r"\bPWD\W*$")
_CALL: Final = re.compile(r"[A-Za-z_][\w.]*[(\[]")  # a line of a traceback: `token = fetch(url)`
_USER_AND_PASSWORD: Final = re.compile(r"(?<=://)[^/\s:@\"']*:[^/\s\"']+(?=@)")
_USER: Final = re.compile(r"(?<=://)[^/\s]*@")
_USER_OF_HTTP: Final = re.compile(r"(?i)(\bhttps?://)[^/\s:@\"']+(?=@)")
_SIGNATURE: Final = re.compile(r"(?i)([?&](?:sig|signature|x-amz-signature)=)[^\s&'\"]+")
_WEBHOOK: Final = re.compile(r"(https?://[^/\s]+/)\S+")  # its path is what lets one in
_KNOWN_WEBHOOK: Final = re.compile(
    r"(?i)(https://(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|[\w.-]{1,100}\.webhook\.office\.com/webhookb2)/)[^\s\"'<>)\]}]+"
)
_KEY_VARIABLE: Final = re.compile(r"(?i)(?<!public_)(?<!partition_)(?<!primary_)(?<!foreign_)(?<!sort_)key(?:_id)?$")
_MIN_LINE_LENGTH: Final = 12  # of a secret of several lines, such as a key, that is printed line by line
_MIN_SECRET_LENGTH: Final = 6  # a shorter value would be found all over a text that has nothing to do with it
_WORDS: Final = frozenset({"default", "disabled", "enabled", "password", "secret", "optional", "required"})


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a value under this name is masked."""
    return _SECRET_NAME.search(name) is not None or name.lower() == "pass"


def mask_text(text: str, more: tuple[Known, ...] = ()) -> str:
    """`password=x` -> `password=***`, `"token": "x"` -> `"token": "***"`, `s3://key:secret@host` -> `s3://***@host`, and values
    of secret variables of the environment (and these `more`) wherever they are."""
    text = _without_known(text, more)
    lower = text.lower()
    if not any(one in lower for one in _HINTS):
        return text
    for pattern in (_BEARER, _COOKIE, _ELEMENT, _PRIVATE_KEY, *_COMMANDS):
        text = pattern.sub(rf"\1{MASK}", text)
    for pattern in (_AUTH, _IDENTIFIED):
        text = pattern.sub(_hidden, text)
    if _starts_of_names(text):
        for pattern in (_PAIR, _OPTION, _TABBED):
            text = pattern.sub(_hidden, text)
        text = _hidden_at_names(_without_blocks(text), (_BEHIND, _COMPARED, _AMONG, _IN_PLAN, _NAMED))
        text = _ALIASED.sub(_hidden_alias, text)
    return _without_compared(text)


def mask_code(code: str, more: tuple[Known, ...] = ()) -> str:
    """The same for source code, where what stands behind a name is a secret only if it is a literal text, or within one
    or a comment (an address of a database, a header)."""
    code = _without_known(code, more)
    if "\n" in code:
        code = "\n".join(map(OpenValues(is_code=True).masked, code.split("\n")))
    code = _TEXT_OF_CODE.sub(_masked_text_of_code, code)
    for pattern in (_PAIR, _AUTH, _IDENTIFIED):
        code = pattern.sub(_hidden, code)
    code = _hidden_at_names(code, (_BEHIND, _COMPARED, _AMONG, _NAMED_LITERAL))
    code = _ALIASED.sub(_hidden_alias, code)
    return _without_compared(code) if _SQL_FILE.match(code) else code


def mask_values(value: Any, name: str = "", more: tuple[Known, ...] = ()) -> Any:
    """Masks JSON values: whatever stands under a name that looks secret, the same elsewhere, and secrets in texts as
    `mask_text` does."""
    return _masked(value, name, is_secret(name), more + secrets_in(value, name))


def masked_json(text: str | None, more: tuple[Known, ...] = ()) -> str | None:
    """The JSON text with its values masked; None when there is nothing to mask in it."""
    value = None if text is None else json.loads(text)
    shown = mask_values(value, more=more)
    return None if shown == value else json.dumps(shown, ensure_ascii=False)


def secrets_in(value: Any, name: str = "") -> tuple[str, ...]:
    """The texts under names that look secret, for `more` of `mask_text`."""
    return tuple(dict.fromkeys(_secrets_in(value, name, is_secret(name))))


def unmask(value: Any, current: Any, name: str = "", more: tuple[Known, ...] = ()) -> Any:
    """What was shown masked and comes back: where it is still as `current` is shown, it is `current`."""
    more = more or secrets_in(current, name)
    if value == mask_values(current, name, more):
        return current
    if isinstance(value, dict) and isinstance(current, dict):
        below = name if is_secret(name) else ""
        return {
            key: unmask(one, current[key], below or key, more) if key in current else one for key, one in value.items()
        }
    if isinstance(value, list) and isinstance(current, list) and len(value) == len(current):
        return [unmask(one, other, name, more) for one, other in zip(value, current, strict=True)]
    return value


def without_known(value: Any, known: tuple[Known, ...]) -> Any:
    """A JSON value without these, wherever they stand; nothing else of it is masked."""
    if isinstance(value, dict):
        return {without_known(key, known): without_known(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [without_known(one, known) for one in value]
    pattern = _any_of(known)
    if pattern is None or isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    shown = pattern.sub(MASK, str(value))  # a number may be a secret, too: a PIN
    return value if shown == str(value) else shown


def mask_settings(value: Any, name: str = "") -> Any:
    """Masks settings as JSON values: what stands under a name that looks secret, webhooks, and secrets in texts (`mask_text`)."""
    if isinstance(value, dict):
        below = name if name == "custom_headers" else ""  # of OpenLineage: any header may hold a key
        return {key: mask_settings(one, below or str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [mask_settings(one, name) for one in value]
    if is_secret(name) or name in ("sha256", "custom_headers"):
        return MASK if value else value
    if not isinstance(value, str):
        return value
    if name == "git":
        return without_credentials(value)
    shown = mask_text(value)
    return _WEBHOOK.sub(rf"\1{MASK}", shown) if name == "url" else shown


def without_credentials(url: str) -> str:
    """The URL without user and password: a user may be a token. Other secrets in it (`?token=`) are masked."""
    return mask_text(_USER.sub("", url))


def longest_known(more: tuple[Known, ...] = ()) -> int:
    """How many characters the longest text has that `mask_text` masks wherever it stands."""
    return max(map(len, _spellings(secrets_of(os.environ) + _of_this_process + more)), default=0)


def _without_known(text: str, more: tuple[Known, ...] = ()) -> str:
    """Without what is a secret whatever it stands behind: known values, and what lets one in at a URL."""
    values = secrets_of(os.environ) + _of_this_process + more
    if values and (known := _any_of(values)):
        text = known.sub(MASK, text)
    if "://" in text:
        text = _USER_AND_PASSWORD.sub(MASK, text)
        for pattern in (_USER_OF_HTTP, _SIGNATURE, _KNOWN_WEBHOOK):
            text = pattern.sub(rf"\1{MASK}", text)
    return _ORACLE.sub(rf"\1{MASK}", text) if "jdbc:" in text else text


def _masked(value: Any, name: str, hides: bool, more: tuple[Known, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _masked(one, str(key), hides or is_secret(str(key)), more) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(one, name, hides, more) for one in value]
    if hides:
        is_plain = value is None or isinstance(value, bool) or (isinstance(value, int | float) and _COUNTS.search(name))
        return value if is_plain or value == "" else MASK
    return mask_text(value, more) if isinstance(value, str) else value


def _secrets_in(value: Any, name: str, hides: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _secrets_in(one, str(key), hides or is_secret(str(key)))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _secrets_in(one, name, hides)
    elif hides and isinstance(value, str):
        yield value
    elif hides and isinstance(value, int) and not isinstance(value, bool) and not _COUNTS.search(name):
        yield str(value)


def _starts_of_names(text: str) -> list[int]:
    """Where names begin that look secret; one may begin within another one."""
    lower = text.lower() if text.isascii() else text.translate(_LOWER)  # of the same length
    starts, found = [], _BEGINS_NAME.search(lower)
    while found:
        start = found.start()
        if _SECRET_NAME.match(text, start):
            starts.append(start)
        found = _BEGINS_NAME.search(lower, start + 1)
    return starts


def _hidden_at_names(text: str, patterns: tuple[_Pattern, ...]) -> str:
    """The text after `pattern.sub(_hidden, text)` with one after another, each of which begins with a name."""
    starts = _starts_of_names(text)
    for pattern in patterns:
        shown, end = [], 0
        for start in starts:
            if start >= end and (found := pattern.match(text, start)):
                shown += [text[end:start], _hidden(found)]
                end = found.end()
        if shown and (changed := "".join([*shown, text[end:]])) != text:
            text, starts = changed, _starts_of_names(changed)
    return text


class OpenValues:
    """The lines of a text, one after the other, each masked as far as it is of a secret that an earlier line begins: a private
    key, a text in quotation marks, a value of YAML (not in code, where `token: str` declares a name)."""

    def __init__(self, *, is_code: bool = False) -> None:
        self._is_code = is_code
        self._goes_on: Callable[[str], str | None] | None = (
            None  # masks the next line; None: it is no part of the secret
        )
        self._lines = 0

    def masked(self, line: str) -> str:
        if self._goes_on is not None:
            shown = self._goes_on(line) if self._lines < _MAX_OPEN else None
            self._lines += 1
            if shown is not None:
                return shown
        self._goes_on, self._lines = None, 0
        if "-----BEGIN" in line and _BEGINS_KEY.search(line) and "-----END" not in line:
            self._goes_on = self._of_key
        elif ('"' in line or "'" in line) and (open_ := self._opened(line)):
            quote = open_["quote"]
            self._goes_on = lambda line: self._of_quoted(line, quote)
            return open_["before"] + (MASK if open_["rest"].strip() else open_["rest"])
        elif not self._is_code and ": " in line and (plain := _PLAIN.match(line)) and is_secret(plain["key"]):
            indentation = len(plain["before"])
            self._goes_on = lambda line: _of_plain(line, indentation)
        return line

    def _opened(self, line: str) -> dict[str, str] | None:
        lower = line.lower()
        if not any(one in lower for one in _HINTS):
            return None
        for start in _starts_of_names(line):
            if found := _OPEN.match(line, start):
                return {**found.groupdict(), "before": line[:start] + found["before"]}
        return None

    def _of_key(self, line: str) -> str | None:
        key, end, after = line.partition("-----END")
        content = key.strip()
        if end:
            self._goes_on = None
        elif not _LINE_OF_KEY.fullmatch(content):
            return None
        shown = _hidden_content(key) if any(map(str.isalnum, content)) else key  # else it is what stands before a line
        return f"{shown}{end}{after}"

    def _of_quoted(self, line: str, quote: str) -> str:
        found = re.match(rf"(?:\\.|(?!{quote})[^\\])*", line)
        end = found.end() if found else 0
        if line.startswith(quote, end):
            self._goes_on = None
        return f"{_hidden_content(line[:end])}{line[end:]}"


def _of_plain(line: str, indentation: int) -> str | None:
    content = line.lstrip(" ")
    return _hidden_content(line) if len(line) - len(content) > indentation and _GOES_ON.fullmatch(content) else None


def _hidden_content(text: str) -> str:
    content = text.strip()
    return text.replace(content, MASK) if content else text


class BlockLines:
    """The lines of a text, one after the other, each masked where it is of the block of a secret: lines keep their numbers."""

    def __init__(self) -> None:
        self._of_key: int | None = None  # the indentation of the key whose block goes on

    def masked(self, line: str) -> str:
        content = line.strip()
        if self._of_key is not None and (not content or len(line) - len(line.lstrip(" ")) > self._of_key):
            return line.replace(content, MASK) if content else line
        mark, self._of_key = _BLOCK_MARK.search(line), None
        if mark and _KEY_OF_BLOCK.search(line, max(0, mark.start() - 120), mark.start()):
            before = _KEY_ALONE.match(line[: mark.start()])
            self._of_key = before.end() if before else 0  # else it is behind the beginning of a text
        return line


def _without_blocks(text: str) -> str:
    if "\n" in text:
        text = "\n".join(map(OpenValues().masked, text.split("\n")))
    lines, parts = BlockLines(), _END_OF_LINE.split(text)
    for at in range(0, len(parts), 2):
        end = len(parts[at])
        if at and parts[at - 1] != "\n" and (quote_mark := _END_OF_TEXT.search(parts[at])):
            end = quote_mark.start()
        ended, after = parts[at][:end], parts[at][end:]
        parts[at] = lines.masked(ended) + after
        if after:
            lines = BlockLines()
    return "".join(parts)


def _hidden(found: re.Match[str]) -> str:
    before, value, groups = found["before"], found["value"], found.groupdict()
    plain = groups["quoted"] if groups.get("quote") else value
    is_filled_in = plain.startswith("{") and _PLACE.fullmatch(plain)  # `f"token={token}"`
    is_number = _NUMBER.fullmatch(value) and _COUNTS.search(before)
    is_folder = value.startswith("/") and _WORKING_DIRECTORY.search(before)
    if (
        is_number
        or is_folder
        or is_filled_in
        or _NOT_SECRET.fullmatch(plain)
        or (before.endswith(" = ") and _CALL.match(value))
    ):
        return found[0]
    if quote_mark := groups.get("quote"):  # `b'x'` and `SecretStr('x')` are such texts, too
        return f"{before}{value[: value.index(quote_mark) + len(quote_mark)]}{MASK}{quote_mark}"
    marks = re.match(r"""\\*["']""", value)
    return f"{before}{marks[0]}{MASK}{marks[0]}" if marks else f"{before}{MASK}"


def _hidden_alias(found: re.Match[str]) -> str:
    shown = found[0] if _NOT_SECRET.fullmatch(found["quoted"]) else None
    return shown or f"{found['quote']}{MASK}{found['quote']}{found['after']}"


def _masked_text_of_code(found: re.Match[str]) -> str:
    """Of a text of Python, by what it is within its quotation marks, which may be SQL."""
    masked = mask_text(found[0])
    marks = found[0][:3] if found[0][:3] in ('"""', "'''") else found[0][:1]
    if marks[0] not in "\"'" or not masked.startswith(marks):
        return masked
    return f"{marks}{_without_compared(masked.removeprefix(marks).removesuffix(marks))}{marks}"


def _without_compared(text: str) -> str:
    return mask_sql(text, _names_secret, _masked_literal)


def _names_secret(name: str) -> bool:
    return is_secret(name.rpartition(".")[2])


def _masked_literal(literal: str) -> str:
    return literal if _NOT_SECRET.fullmatch(literal[1:-1]) else f"{literal[0]}{MASK}{literal[-1]}"


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables whose names look secret."""
    return tuple(environ.get(name, "") for name in environ if _is_secret_variable(name))


@lru_cache(maxsize=4096)
def _is_secret_variable(name: str) -> bool:
    return name != "PWD" and (is_secret(name) or _KEY_VARIABLE.search(name) is not None)


@lru_cache(maxsize=256)
def _any_of(values: tuple[Known, ...]) -> re.Pattern[str] | None:
    """Finds each of them. One of letters or digits alone has to stand for itself, as it may be part of a word; or is short."""
    parts = [
        rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])" if _may_be_part_of_a_word(one) else re.escape(one)
        for one in _spellings(values)
    ]
    return re.compile("|".join(parts)) if parts else None


@lru_cache(maxsize=256)
def _spellings(values: tuple[Known, ...]) -> list[str]:
    """Each of them as it is, and as Python, JSON and URLs write it; the longest first, as one may be a part of another. Left out
    are those that would hide what is no secret: short ones, words, and paths of files, unless they are secrets for certain."""
    spelled: set[str] = set()
    for known in values:
        is_certain = isinstance(known, NamedSecret)
        value = known.value if isinstance(known, NamedSecret) else known
        if not is_certain and (
            len(value) < _MIN_SECRET_LENGTH or value.lower() in _WORDS or (value[0] == "/" and os.path.exists(value))
        ):
            continue
        spelled |= {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        spelled |= {quote(value, safe=""), quote(value), quote_plus(value)}
        if "\n" in value:
            lines = (line.strip() for line in value.splitlines())
            shortest = _MIN_SECRET_LENGTH if is_certain else _MIN_LINE_LENGTH
            spelled |= {line for line in lines if len(line) >= shortest}
    return sorted(spelled, key=lambda one: (-len(one), one))


def _may_be_part_of_a_word(value: str) -> bool:
    return value.isalpha() or value.isdigit() or len(value) < _MIN_SECRET_LENGTH
