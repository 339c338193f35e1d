"""`bfm config`: the configuration as it is understood."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.errors import InvalidInput

app = group("config", "The configuration as it is understood.")
ABOUT: Final = "the configuration of this machine"


@command(app, "check")
def check(call: CliContext) -> None:
    """Read the configuration and say whether it is right. All that is wrong is named with its place (exit code 2).

    Example: [cyan]bfm --conf conf/manager.yaml config check[/]
    """
    call.needs_no_server(ABOUT)
    from backfill_manager.dags.parsers.registry import check_parsers
    from backfill_manager.settings import settings_and_places

    check_parsers(*settings_and_places(call.conf, state=call.state, environ=call.environ))
    read = sources(call)
    call.out.told({"ok": True, "sources": read}, f"The configuration is right. It comes from: {', '.join(read)}.")


@command(app, "show")
def show(call: CliContext) -> None:
    """Print the settings in effect, defaults included; secrets are masked.

    Example: [cyan]bfm config show[/]
    """
    import sys

    from backfill_manager.masking import mask_values

    call.needs_no_server(ABOUT)
    plain = mask_values(call.settings.model_dump(mode="json"))
    if call.out.is_table:
        import yaml  # type: ignore[import-untyped]

        sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    else:
        call.out.document(plain)


@command(app, "token")
def token(
    call: CliContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: what it asks is told by this name.")],
    role: Annotated[
        Literal["viewer", "operator"], typer.Option("--role", help="viewer looks; operator may change, too.")
    ] = "viewer",
) -> None:
    """Make a bearer token for the API and the web pages. It is printed once and kept nowhere; the configuration gets its
    SHA-256, as the lines say that are printed beneath it.

    Example: [cyan]bfm config token grafana --role viewer[/]
    """
    import hashlib
    import secrets

    from backfill_manager.settings import TokenSettings

    call.needs_no_server(ABOUT)

    made = f"bfm_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(made.encode()).hexdigest()
    try:
        TokenSettings(name=name, sha256=digest, role=role)
    except ValueError:
        raise InvalidInput(f"NAME {name[:60]!r} must be up to 200 letters, digits, `_`, `.` or `-`.") from None
    if not call.out.is_table:
        call.out.document({"token": made, "name": name, "sha256": digest, "role": role})
        return
    call.out.line(made)
    line = f"{{name: {name}, sha256: {digest}, role: {role}}}"
    call.out.remark("It is shown only now. Put this into conf/manager.yaml, and start the server again:")
    call.out.remark(f"api:\n  tokens:\n    - {line}")


def sources(call: CliContext) -> list[str]:
    """What was read, weakest first."""
    found = ["defaults"]
    if call.conf_file:
        found.append(call.conf_file)
    found += [
        f"environment ({name})" for name in sorted(call.environ) if name.startswith("BFM_") and name != "BFM_CONF"
    ]
    return [*found, "--state"] if call.state else found
