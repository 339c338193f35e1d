"""`bfm config`: the configuration as it is understood."""

from __future__ import annotations

import re
from typing import Any, Final

from backfill_manager.cli.call import Call, command, group

app = group("config", "The configuration as it is understood.")
MASK: Final = "********"
_SECRET = re.compile(r"token|secret|passw|credential|sha256|(api|access|account|private)[._-]?key|sas\b", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(://[^/@:\s]*):[^/@\s]+@")
_URL_USER = re.compile(r"(?<=://)[^/\s]*@")
_WEBHOOK = re.compile(r"(https?://[^/\s]+/)\S+")  # its path is what lets one in


@command(app, "check")
def check(call: Call) -> None:
    """Read the configuration and say whether it is right. All that is wrong is named with its place (exit code 2).

    Example: [cyan]bfm --conf conf/manager.yaml config check[/]
    """
    _ = call.settings  # raises when something is wrong
    read = sources(call)
    call.out.told({"ok": True, "sources": read}, f"The configuration is right. It comes from: {', '.join(read)}.")


@command(app, "show")
def show(call: Call) -> None:
    """Print the settings in effect, defaults included; secrets are masked.

    Example: [cyan]bfm config show[/]
    """
    import sys

    plain = masked(call.settings.model_dump(mode="json"))
    if call.out.is_table:
        import yaml  # type: ignore[import-untyped]

        sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    else:
        call.out.document(plain)


def sources(call: Call) -> list[str]:
    """What was read, weakest first."""
    found = ["defaults"]
    if call.conf_file:
        found.append(call.conf_file)
    found += [
        f"environment ({name})" for name in sorted(call.environ) if name.startswith("BFM_") and name != "BFM_CONF"
    ]
    return [*found, "--state"] if call.state else found


def masked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: masked(one, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [masked(one, key) if isinstance(one, dict | list) else one for one in value]
    if isinstance(value, str):
        if key == "git":  # a user may be a token
            return _URL_USER.sub("", value)
        if key == "url":
            return _WEBHOOK.sub(r"\1" + MASK, _URL_PASSWORD.sub(r"\1:" + MASK + "@", value))
        return MASK if value and _SECRET.search(key) else _URL_PASSWORD.sub(r"\1:" + MASK + "@", value)
    return value
