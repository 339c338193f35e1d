"""Removes secrets from what is printed, logged or shown: values under names that look secret, passwords in URLs, and the values
of such variables of the environment.

Texts (log lines, errors, reasons) are stored masked. Values that a task works with (`conf`, params, results) are stored as they
are and masked wherever they are shown; `unmask` takes such a value back from whoever was shown it.

    names (which names) ─► known (values), patterns (how they look in a text) ─► open_values (of several lines), sql
                       ─► text (`mask_text`, `mask_code`) ─► values (`mask_values`, `mask_settings`)
"""

from backfill_manager.masking.known import (
    Known,
    NamedSecret,
    hide,
    known_of,
    longest_known,
    secrets_in,
    secrets_of,
    without_known,
)
from backfill_manager.masking.names import MASK, is_secret
from backfill_manager.masking.open_values import BlockLines, OpenValues
from backfill_manager.masking.text import mask_code, mask_text
from backfill_manager.masking.values import mask_settings, mask_values, masked_json, unmask, without_credentials

__all__ = [
    "MASK", "BlockLines", "Known", "NamedSecret", "OpenValues", "hide", "is_secret", "known_of", "longest_known", "mask_code",
    "mask_settings", "mask_text", "mask_values", "masked_json", "secrets_in", "secrets_of", "unmask", "without_credentials",
    "without_known",
]  # fmt: skip
