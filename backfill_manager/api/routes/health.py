"""`/health`: open to all, for probes; who leads is told to those who may look."""

from __future__ import annotations

from fastapi import APIRouter, Request

from backfill_manager import __version__
from backfill_manager.api.auth import known_or_none
from backfill_manager.api.context import HouseOf
from backfill_manager.api.models import HealthView, ManagerView
from backfill_manager.api.openapi import READS
from backfill_manager.model.records import TABLES
from backfill_manager.queries.managers import manager_status

router = APIRouter(tags=["health"])


@router.get(
    "/health", operation_id="get_health", response_model=HealthView,
    responses={status: READS[status] for status in (403, 422, 429, 431, 503)},
)  # fmt: skip
def health(request: Request, house: HouseOf) -> HealthView:
    """Whether the state can be read (`503` when not), and whether a manager leads. Without one, reads go on and changes
    wait for the next."""
    house.versions(tuple(TABLES))  # a table that can't be opened is told here, also one that the rest does not need
    status = manager_status(house.store, house.clock.now())
    person = known_or_none(house, request)
    return HealthView(
        status="ok",
        manager="leading" if status["leading"] else "none",
        detail=status["advice"],
        leader=ManagerView.model_validate(status) if person and status["term"] is not None else None,
        version=__version__,
    )
