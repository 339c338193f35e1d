"""Runs the API over a manager in memory (`testing.InMemoryManager`) in this process, called as over the network."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import httpx
from fastapi import FastAPI

from backfill_manager.api.app import create_app
from backfill_manager.clock import SystemClock
from backfill_manager.model.records import Record, Request, Response
from backfill_manager.model.transitions import Changes
from backfill_manager.settings import ApiSettings, Settings, TokenSettings
from backfill_manager.store.base import Store
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

HERE = ("127.0.0.1", 50000)
JANUARY = {"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-31"}  # the body of a new backfill
TOKENS = {
    "vera": ("viewer", "token of vera"),
    "oleg": ("operator", "token of oleg"),
    "olga": ("operator", "token of olga"),
}


def with_tokens(**api: Any) -> Settings:
    tokens = [
        TokenSettings(name=name, sha256=hashlib.sha256(token.encode()).hexdigest(), role=role)  # type: ignore[arg-type]
        for name, (role, token) in TOKENS.items()
    ]
    return Settings(api=ApiSettings(tokens=tokens, **api))


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name][1]}"}


class Caller:
    """Calls an app; `meanwhile` is done again and again until it has answered."""

    def __init__(self, app: FastAPI, *, address: tuple[str, int] = HERE, base_url: str = "http://localhost:8099"):
        self.app, self.address, self.base_url = app, address, base_url

    def __call__(self, method: str, path: str, *, meanwhile: Any = None, **more: Any) -> httpx.Response:
        if path.startswith("/") and not path.startswith(("/api", "/metrics", "/openapi")):
            path = "/api/v1" + path

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=self.address)
            async with httpx.AsyncClient(transport=transport, base_url=self.base_url) as client:
                calling = asyncio.ensure_future(client.request(method, path, **more))
                while meanwhile is not None and not calling.done():
                    meanwhile()
                    await asyncio.sleep(0)
                return await calling

        return asyncio.run(call())

    def get(self, path: str, **more: Any) -> Any:
        """The JSON of an answer that must be right."""
        result = self("GET", path, **more)
        assert result.status_code == 200, result.text
        return result.json()


class ApiFixture:
    """One DAG of two tasks, a manager in memory, and the API over its state."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.clock = FakeClock()
        spec = dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]})
        self.manager = InMemoryManager(spec, clock=self.clock, script=lambda launch: None)
        self.settings = settings or Settings()
        self.app = create_app(self.settings, self.store, clock=self.clock, secret=b"known")
        self.call = Caller(self.app)

    @property
    def store(self) -> Store:
        return self.manager.store

    def backfill(self, n: int = 3, **fields: Any) -> str:
        return self.manager.backfill("flights", days("2013-01-01", n), **fields)

    def put(self, *rows: Record) -> None:
        changes = Changes()
        for row in rows:
            changes.put(row)
        self.manager.leader.commit(changes)

    def answer(self, request: Request, outcome: str, message: str, object_id: str | None, payload: Any = None) -> None:
        """As a manager that has planned it."""
        self.put(
            Response(
                request.request_id, request.kind, outcome, object_id, message,
                None if payload is None else json.dumps(payload), self.clock.now(), self.manager.leader.term,
            )
        )  # fmt: skip

    def requests(self) -> list[Request]:
        return self.store.read(Request, order_by=("requested_at",))


def system_app(settings: Settings, store: Store) -> FastAPI:
    return create_app(settings, store, clock=SystemClock(), secret=b"known")
