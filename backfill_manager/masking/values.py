"""Masks values of JSON, and settings."""

from __future__ import annotations

import json
from typing import Any

from backfill_manager.masking.known import Known, secrets_in
from backfill_manager.masking.names import COUNTS, MASK, is_secret
from backfill_manager.masking.patterns import USER, WEBHOOK
from backfill_manager.masking.text import mask_text


def mask_values(value: Any, name: str = "", more: tuple[Known, ...] = ()) -> Any:
    """Masks JSON values: whatever stands under a name that looks secret, the same elsewhere, and secrets in texts as
    `mask_text` does."""
    return _masked(value, name, is_secret(name), more + secrets_in(value, name))


def masked_json(text: str | None, more: tuple[Known, ...] = ()) -> str | None:
    """The JSON text with its values masked; None when there is nothing to mask in it."""
    value = None if text is None else json.loads(text)
    shown = mask_values(value, more=more)
    return None if shown == value else json.dumps(shown, ensure_ascii=False)


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
    return WEBHOOK.sub(rf"\1{MASK}", shown) if name == "url" else shown


def without_credentials(url: str) -> str:
    """The URL without user and password: a user may be a token. Other secrets in it (`?token=`) are masked."""
    return mask_text(USER.sub("", url))


def _masked(value: Any, name: str, hides: bool, more: tuple[Known, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _masked(one, str(key), hides or is_secret(str(key)), more) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(one, name, hides, more) for one in value]
    if hides:
        is_plain = value is None or isinstance(value, bool) or (isinstance(value, int | float) and COUNTS.search(name))
        return value if is_plain or value == "" else MASK
    return mask_text(value, more) if isinstance(value, str) else value
