"""`CliContext`: the global options of one command line, and the settings, backend and output that they lead to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from backfill_manager.cli.render.printer import Format, Output
from backfill_manager.cli.render.times import Times, check_choice
from backfill_manager.clock import Clock, SystemClock
from backfill_manager.errors import InvalidInput

if TYPE_CHECKING:
    from backfill_manager.cli.backend.local import LocalBackend
    from backfill_manager.cli.backend.remote import RemoteBackend
    from backfill_manager.settings import RawSettings, Settings


@dataclass
class CliContext:
    """Options are laid over it while the line is read (`override`); the properties are for commands, after that."""

    state: str | None = None
    server: str | None = None
    conf: str | None = None
    output: Format = "table"
    timezone: str | None = None
    debug: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=SystemClock)
    pause: Callable[[float], None] = time.sleep  # between two reads of the state; tests act in it instead of waiting

    def override(self, **options: Any) -> None:
        for name, value in options.items():
            if value:
                setattr(self, name, value)
        if self.timezone:
            check_choice(self.timezone, "--timezone")

    def refuse_server(self, about: str = "this machine") -> None:
        """Of a command that is about this machine, when the line names a server; one in the environment is for others."""
        if self.server:
            raise InvalidInput(f"--server does not go with this command, which is about {about}: leave it out.")

    @property
    def out(self) -> Output:
        return Output(self.output, lambda: self.times)

    @cached_property
    def times(self) -> Times:
        """In which zone tables have their times."""
        choice = self.timezone or self.environ.get("BFM_TIMEZONE")
        option = "--timezone" if self.timezone else "BFM_TIMEZONE"
        return Times(check_choice(choice, option), self._zones_of_dags) if choice else Times()

    def _zones_of_dags(self) -> Mapping[str, str]:
        return {dag["dag_id"]: dag["timezone"] for dag in self.backend.dags(active=None)}

    @property
    def settings(self) -> Settings:
        return self.settings_and_places[0]

    @cached_property
    def settings_and_places(self) -> tuple[Settings, RawSettings]:
        from backfill_manager.settings import settings_and_places

        return settings_and_places(self.conf, state=self.state, environ=self.environ)

    @property
    def server_url(self) -> str | None:
        """The server to use; None: the tables. An option for one wins over an environment variable for the other."""
        if self.server and self.state:
            raise InvalidInput("--server and --state don't go together: a server knows where its state is.")
        return self.server or (None if self.state else self.environ.get("BFM_SERVER")) or None

    @cached_property
    def backend(self) -> LocalBackend | RemoteBackend:
        """Where this command reads and submits: a server, or the state tables."""
        if url := self.server_url:
            from backfill_manager.cli.backend.remote import RemoteBackend
            from backfill_manager.client.client import Client, token_of

            return RemoteBackend(self, Client(url, token_of(self.environ), pause=self.pause))
        from backfill_manager.cli.backend.local import LocalBackend

        return LocalBackend(self)

    def local_backend(self, or_else: str = "") -> LocalBackend:
        """The state tables, for a command that no server can carry out: `InvalidInput` when the line or the environment
        names a server. `or_else`: what to do over a server."""
        if url := self.server_url:
            how = "--server" if self.server else "BFM_SERVER"
            raise InvalidInput(
                f"This command works on the tables of the state, and not over a server ({how} names {url}); "
                f"say where the state is with --state{or_else and f', or {or_else}'}."
            )
        return cast("LocalBackend", self.backend)

    def close(self) -> None:
        if "backend" in self.__dict__:
            self.backend.close()
