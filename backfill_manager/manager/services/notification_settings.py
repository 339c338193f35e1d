"""Where messages go: the configuration's `notifications`, with the addresses that the environment holds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from backfill_manager.errors import InvalidConfig
from backfill_manager.settings.model import NotificationSettings


@dataclass(frozen=True)
class Target:
    name: str
    url: str  # holds secrets
    events: frozenset[str]
    dags: tuple[str, ...]
    group_s: float

    def wants(self, event: str, dag_id: str, named: Iterable[str]) -> bool:
        """Whether it hears of this, `named` being the targets that the DAG names."""
        return event in self.events and (self.name in named or any(fnmatchcase(dag_id, one) for one in self.dags))


def targets_of(settings: Iterable[NotificationSettings]) -> tuple[Target, ...]:
    """`InvalidConfig` where a variable of the environment is not set."""
    return tuple(
        Target(one.name, _url_of(one), frozenset(one.events), tuple(one.dags), one.group) for one in settings
    )  # fmt: skip


def _url_of(settings: NotificationSettings) -> str:
    if settings.url is not None:
        return settings.url.get_secret_value()
    name = settings.url_env or ""
    if not (url := os.environ.get(name, "").strip()):
        raise InvalidConfig(f"notifications, {settings.name}: the environment has no variable {name}")
    return url
