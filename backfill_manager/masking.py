"""Removes secrets from what is printed, logged or stored: values by their key, URLs, texts, the process's environment."""

from __future__ import annotations

import os
import re
from typing import Any, Final

MASK: Final = "***"
_SECRET_KEY: Final = re.compile(
    r"passw|secret|token|credential|authorization|sha256|private|(api|access|account)[._-]?key|sas\b", re.IGNORECASE
)
_SECRET_VARIABLE: Final = re.compile(r"PASSW|PASSPHRASE|_(PASS|PWD)$|SECRET|TOKEN|KEY|CREDENTIAL", re.IGNORECASE)
_SECRET_IN_TEXT: Final = re.compile(
    # Bounded, so that a long text of somebody else's choice (an address) is read once and not again from each word.
    r"(?i)((?:passw(?:or)?d|secret|token|api_?key|credential)[\w.-]{0,100}\s{0,9}[=:]\s{0,9}|\bbearer\s{1,9})[^\s,;&'\"]+"
)
_USER_AND_PASSWORD: Final = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
_USER: Final = re.compile(r"(?<=://)[^/\s]*@")
_PASSWORD: Final = re.compile(r"(://[^/@:\s]*):[^/@\s]+@")
_WEBHOOK: Final = re.compile(r"(https?://[^/\s]+/)\S+")  # its path is what lets one in
_MIN_SECRET_LENGTH: Final = 6  # a shorter value would be found all over a text that has nothing to do with it


def is_secret(key: str) -> bool:
    """Whether a value under this key is masked."""
    return _SECRET_KEY.search(key) is not None


def mask_text(text: str) -> str:
    """`s3://key:secret@host` -> `s3://***@host`, `password=x` -> `password=***`."""
    return _SECRET_IN_TEXT.sub(rf"\1{MASK}", _USER_AND_PASSWORD.sub(MASK, text))


def mask_environment(text: str) -> str:
    """Masks the values of environment variables that are named like secrets, and passwords in URLs: for messages and
    tracebacks of other people's code."""
    values = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    spelled = {form for value in values for form in (value, repr(value)[1:-1]) if len(value) >= _MIN_SECRET_LENGTH}
    for secret in sorted(spelled, key=len, reverse=True):  # the longest first: one may be a part of another
        text = text.replace(secret, MASK)
    return _USER_AND_PASSWORD.sub(MASK, text)


def without_credentials(url: str) -> str:
    """The URL without user and password: a user may be a token."""
    return _USER.sub("", url)


def mask_values(value: Any, key: str = "") -> Any:
    """Masks settings as JSON values, by their keys: those named like secrets, credentials in URLs, webhooks."""
    if isinstance(value, dict):
        return {name: mask_values(each, str(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [mask_values(each, key) for each in value]
    if is_secret(key):
        return MASK if value else value
    if not isinstance(value, str):
        return value
    if key == "git":
        return without_credentials(value)
    shown = _PASSWORD.sub(rf"\1:{MASK}@", value)
    return _WEBHOOK.sub(rf"\1{MASK}", shown) if key == "url" else shown
