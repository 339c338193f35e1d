"""How secrets look in texts: a name and its value in the ways of settings, code, SQL, plans of Spark and commands; headers,
addresses and keys.

Every part is bounded, as `names.NAME` is. Groups: `before` and `after` stay, `value` is the secret, with `quoted`
between its quotation marks."""

from __future__ import annotations

import re
from typing import Final

from backfill_manager.masking.names import NAME, LazyPattern

_QUOTED: Final = r"""(?P<quote>"{3}|'{3}|["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n])*)(?P=quote)"""
# A value without quotes goes on after a comma (a list, a password that has one), unless another name begins there, or it is
# no secret itself; and after a quotation mark within a word.
_MORE: Final = r"""(?:,[^\s,;&'"=:()\[\]{}]+(?![^\s,;&'")\]}])|['"]\w[^\s,;&'")\]}]*)"""
_NO_LIST: Final = r"(?!(?i:none|null|true|false|str|bytes|[\d._]+),)"
_VALUE: Final = (
    rf"""(?:[A-Za-z_][\w.]{{0,60}}\()?[bfru]{{0,2}}{_QUOTED}|\\{{1,8}}(?P<escaped>["'])[^"'\\\n]{{0,4000}}\\{{1,8}}(?P=escaped)|["'][^\s"']+"""
    rf"""|\[[^\[\]]{{0,2000}}\]|\{{[^{{}}]{{0,2000}}\}}|{_NO_LIST}[^\s,;&'"]*[^\s,;&'")\]}}]{_MORE}*|[^\s,;&'"]*[^\s,;&'")\]}}]"""
)
NAMED: Final = LazyPattern(
    rf"""(?P<before>{NAME}(?:\\{{0,8}}["'`])?\]?[ \t]{{0,9}}(?:=>|:=|={{1,3}}|:|%3[ADad])[ \t]{{0,9}}"""
    rf"(?:(?i:bearer|basic|token|digest|apikey|negotiate|ntlm|shared\w{{1,20}})[ \t]{{1,9}})?)(?P<value>{_VALUE})"
)
NAMED_LITERAL: Final = LazyPattern(
    rf"""(?P<before>{NAME}["'`]?\]?[ \t]{{0,9}}(?:=>|={{1,3}}|:)[ \t]{{0,9}}[bfru]{{0,2}})(?P<value>{_QUOTED})"""
)
# What something secret is compared with, and what is named so: `token <> 'x'`, `token IN ('x', 'y')`, `'x' AS token`.
COMPARED: Final = LazyPattern(
    rf"""(?P<before>{NAME}["'`]?\]?\)?[ \t]{{0,9}}(?:!={{1,2}}|<>|<=>|(?i:(?:not[ ])?[ir]?like)(?=[ '"]))"""
    rf"""[ \t]{{0,9}}[bfru]?)(?P<value>{_QUOTED})"""
)
AMONG: Final = LazyPattern(
    rf"""(?P<before>{NAME}["'`]?\]?[ \t]{{1,9}}(?i:not[ ])?(?i:in)[ \t]{{0,9}})"""
    r"""(?P<value>[(\[]\s{0,9}["'][^()\[\]]{0,2000}[)\]])"""
)
ALIASED: Final = LazyPattern(
    r"""(?P<value>(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\n]){0,200})(?P=quote))"""
    rf"""(?P<after>\s{{1,9}}(?i:as)\s{{1,9}}[`"]?[\w.-]{{0,40}}?{NAME})"""
)
# In a plan of Spark, which has no quotation marks: `(lower(token#12) = x)`.
IN_PLAN: Final = LazyPattern(
    rf"""(?P<before>{NAME}\#\d{{1,9}}L?\){{0,9}}[ ](?:=|<=>|<|>|<=|>=|(?:NOT[ ])?(?:IN|(?:R|I)?LIKE))[ ]"""
    r"""(?:[a-z]\w{0,40}\(){0,9})"""
    r"""(?P<value>\([^()]{1,2000}\)|[^\s()#,]{1,500}(?![^\s()#,]*\#\d))"""
)
# Without a sign between name and value: `('password', 'x')`, `--password x`, `password 'x'` of SQL, `<password>x<`.
PAIR: Final = LazyPattern(
    rf"""(?P<before>(?:(?P<pair>\(\s{{0,9}}[bfru]?["'])|["']--?)[\w.-]{{0,40}}?{NAME}["']\s{{0,9}},\s{{0,9}}[bfru]?)"""
    rf"""(?P<value>{_QUOTED})(?(pair)(?=\s{{0,9}}\)))"""
)
AUTH: Final = LazyPattern(
    rf"""(?P<before>\bauth[ ]?=[ ]?\(\s{{0,9}}["'][^"'\n]{{0,200}}["']\s{{0,9}},\s{{0,9}})(?P<value>{_QUOTED})"""
)
BEHIND: Final = LazyPattern(rf"""(?i:(?P<before>(?!(?<!\w)tokens?\W){NAME}["'`]?\s{{1,9}}))(?P<value>{_QUOTED})""")
IDENTIFIED: Final = LazyPattern(rf"(?i:(?P<before>(?<!\w)identified[ ]by\s{{1,9}}))(?P<value>{_QUOTED})")
OPTION: Final = LazyPattern(
    r"""(?P<before>(?:(?<![\w-])--?[\w.-]{0,40}?|(?<![\w.-])(?:spark|fs)\.[\w.-]{0,80}?)"""
    rf"""{NAME}[ \t]{{1,9}})(?P<value>{_QUOTED}|"""
    r"(?!(?:is|are|was|has|must|not|and|or|in|to|for|with|needs?|requires?|options?|arguments?|expected)\b)[^\s\"'-](?:\S*[^\s\"')\]},;])?)"
)
# A line of two cells, as settings are copied from tables; not the head of a table, nor a column with its type.
TABBED: Final = LazyPattern(
    rf"""(?P<before>(?m:^)[ \t]{{0,40}}[\w.-]{{0,40}}?{NAME}[ ]{{0,9}}\t[ \t]{{0,9}})"""
    r"(?!(?i:values?|names?|types?|kinds?|users?|roles?|scopes?|status|states?|owners?|e-?mails?|hosts?|ids?|counts?|rows|uses|length"
    r"|descriptions?|comments?|notes?|defaults?|required|optional|created|updated|expires|dates?|times?|string|(?:var)?char|binary"
    r"|(?:tiny|small|big)?int|integer|long|double|float|decimal|boolean|timestamp|array|map|struct)\b)"
    r"(?P<value>[^\s\"']+)(?=[ \t]{0,9}\r?(?:\n|\Z))"
)
# Options that have no such name: `mysql -px`, `sshpass -p x`, `curl -u user:x`.
COMMANDS: Final = (
    LazyPattern(r"(\b(?:mysql|mariadb)\w{0,20}\b[^\n|;]{0,200}? -p)[^\s'\"]+"),
    LazyPattern(r"(\bsshpass -p ?['\"]?)[^\s'\"]+"),
    LazyPattern(r"(\bcurl\b[^\n|;]{0,500}? (?:-u|--user)[ =]?['\"]?[^\s:'\"]{1,200}:)[^\s'\"]+"),
)
ELEMENT: Final = LazyPattern(rf"(<(?:\w{{1,40}}:)?[\w.-]{{0,40}}?{NAME}>)[^<]+")
COOKIE: Final = LazyPattern(r"(?i)(\bcookie['\"]?:[ \t]{0,9}['\"]?)[^\n'\"]+")
BEGIN_KEY: Final = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# Not where `OpenValues` has masked its lines, each by itself.
PRIVATE_KEY: Final = LazyPattern(
    rf"({BEGIN_KEY})(?!(?:\s{{1,99}}\*{{3}}){{1,60}}\s{{1,99}}-----END)(?:(?:(?!-----(?:BEGIN|END))[\s\S])+(?=-----END)|[^-]+)"
)
ORACLE: Final = LazyPattern(r"(?i)(jdbc:oracle:\w{1,9}:[^/\s]{1,100}/)[^@\s]+(?=@)")
TEXT_OF_CODE: Final = LazyPattern(rf"""\"{{3}}[\s\S]*?\"{{3}}|'{{3}}[\s\S]*?'{{3}}|{_QUOTED}|(?:\#|--)[^\n]*""")
SQL_FILE: Final = re.compile(
    r"(?i)(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*(?:select|with|merge|insert|update|delete|create|alter|set)\b"
)
BEARER: Final = LazyPattern(r"(?i)(\bbearer[ \t]{1,9})(?!tokens?\b|auth)[^\s,;&'\")\]}]+")
NOT_SECRET: Final = re.compile(r"(?i)(?:none|null|true|false|str|bytes|\*{3})[)\]}]*|")
PLACE: Final = re.compile(r"\{[A-Za-z_][\w.]*(?:![rsa])?\}")
NUMBER: Final = re.compile(r"[\d.,_]+")
WORKING_DIRECTORY: Final = re.compile(r"\bPWD\W*$")
CALL: Final = re.compile(r"[A-Za-z_][\w.]*[(\[]")  # a line of a traceback: `token = fetch(url)`
USER_AND_PASSWORD: Final = re.compile(r"(?<=://)[^/\s:@\"']*:[^/\s\"']+(?=@)")
USER: Final = re.compile(r"(?<=://)[^/\s]*@")
USER_OF_HTTP: Final = re.compile(r"(?i)(\bhttps?://)[^/\s:@\"']+(?=@)")
SIGNATURE: Final = re.compile(r"(?i)([?&](?:sig|signature|x-amz-signature)=)[^\s&'\"]+")
WEBHOOK: Final = re.compile(r"(https?://[^/\s]+/)\S+")  # its path is what lets one in
KNOWN_WEBHOOK: Final = re.compile(
    r"(?i)(https://(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|[\w.-]{1,100}\.webhook\.office\.com/webhookb2)/)[^\s\"'<>)\]}]+"
)
