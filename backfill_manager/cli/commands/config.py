"""`bfm config`: the configuration in effect."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument, option
from backfill_manager.cli.render.printer import Output
from backfill_manager.errors import InvalidInput

group = Group("config", "The configuration: check it, show what is in effect, create API tokens.")


@group.command("check")
def check(context: CliContext) -> None:
    """Check the configuration. Every mistake is reported with its place (exit code 2). An environment variable that sets
    nothing, but has nearly the name of one that does, is a warning.

    Example: [cyan]bfm --conf conf/manager.yaml config check[/]
    """
    context.refuse_server("the configuration of this machine")
    from backfill_manager.dags.bundles.environment import check_environments
    from backfill_manager.dags.parsers.registry import check_parsers
    from backfill_manager.manager.services.notification_settings import targets_of
    from backfill_manager.settings import DEFAULT_CONF

    settings, places = context.settings_and_places
    check_parsers(settings, places)
    check_environments(settings, places)
    # Targets in the environment are checked by `bfm doctor`, where the manager runs.
    if in_file := [one for one in settings.notifications if one.url is not None]:
        from backfill_manager.manager.services.notification_sender import AppriseChannel

        for target in targets_of(in_file):
            AppriseChannel(target)
    if settings.openlineage is not None:
        from backfill_manager.manager.telemetry.openlineage_sender import make_client

        make_client(settings.openlineage)
    named = context.conf or context.environ.get("BFM_CONF")
    file = named or (DEFAULT_CONF if Path(DEFAULT_CONF).exists() else None)
    found = (place.partition("environment, ")[2] for place in places.places.values())
    variables = sorted({name for name in found if name})  # those that set something: a misspelt one does not
    sources = ["defaults", *([file] if file else ()), *(f"environment ({name})" for name in variables)]
    sources += ["--state"] if context.state else []
    text = f"The configuration is right. It comes from: {', '.join(sources)}."
    context.out.print_result({"ok": True, "sources": sources, "warnings": places.warnings}, text)
    for warning in places.warnings:
        context.out.note(warning, style="yellow")


@group.command("show")
def show(context: CliContext) -> None:
    """Print the settings in effect, defaults included; secrets are masked.

    Example: [cyan]bfm config show[/]
    """
    from backfill_manager.masking import mask_settings

    context.refuse_server("the configuration of this machine")
    plain = mask_settings(context.settings.model_dump(mode="json"))
    Output("yaml" if context.out.is_table else context.out.form).print_document(plain)


@group.command("token")
def token_(
    context: CliContext,
    name: str = argument("NAME", "Owner of the token. Requests with this token are recorded under this name."),
    role: Literal["viewer", "operator"] = option(
        "--role", "viewer may only read. operator may also make changes.", default="viewer"
    ),
    expires: str | None = option(
        "--expires", "When the token expires: the end of this day (UTC), or this instant.", metavar="DATE"
    ),
) -> None:
    """Create a bearer token for the API and the web pages. It is printed once and stored nowhere; its SHA-256 goes into the
    configuration, as the lines printed below it.

    Example: [cyan]bfm config token grafana --role viewer --expires 2027-01-31[/]
    """
    import hashlib
    import secrets

    from pydantic import ValidationError

    from backfill_manager.settings import DEFAULT_CONF, TokenSettings

    context.refuse_server("the configuration of this machine")
    token = f"bfm_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    try:
        made = TokenSettings.model_validate({"name": name, "sha256": digest, "role": role, "expires": expires})
    except ValidationError as error:
        [problem] = error.errors()[:1]
        if problem["loc"] == ("expires",):
            raise InvalidInput(f"--expires {problem['msg'].removeprefix('Value error, ')}.") from None
        raise InvalidInput(f"NAME {name[:60]!r} must be up to 200 letters (a to z), digits, `_`, `.` or `-`.") from None
    if made.is_expired(context.clock.now()):
        raise InvalidInput(f"--expires {expires} is over already; name a day or an instant to come.")
    document = {"name": name, "sha256": digest, "role": role} | ({"expires": expires} if expires else {})
    if not context.out.is_table:
        context.out.print_document({"token": token, **document})
        return
    context.out.print_line(token)
    line = f"{{{', '.join(f'{key}: {value}' for key, value in document.items())}}}"
    file = context.conf or context.environ.get("BFM_CONF") or DEFAULT_CONF
    context.out.note(f"It is shown only now. Put this into {file}, and start the server again:")
    context.out.note(f"api:\n  tokens:\n    - {line}")
