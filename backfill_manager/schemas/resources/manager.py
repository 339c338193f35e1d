"""The manager, its health, its pools and its notifications."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from backfill_manager.schemas.resources.base import Instant, Resource


class ManagerStatus(Resource):
    """The manager of a term."""

    leading: bool = Field(description="Whether the manager is running.")
    term: int | None = Field(description="Number of the term. It increases with every new leader.")
    state: str | None = Field(description="`leading` or `stopped`.")
    advice: str | None = Field(description="What to do if the manager is not running, or one of its loops may hang.")
    manager_id: str = Field(description="Id of the manager.")
    host: str = Field(description="Host on which it runs.")
    pid: int = Field(description="Process id.")
    started_at: Instant = Field(description="When it became the leader.")
    heartbeat_at: Instant = Field(description="When it sent its last heartbeat.")
    heartbeat_age_s: float = Field(description="Seconds since its last heartbeat.")
    lease_s: int = Field(description="Seconds without a heartbeat after which another manager may lead.")
    ended_at: Instant | None = Field(description="When it stopped.")
    version: str = Field(description="Version of the package.")
    application_id: str | None = Field(description="Id of its Spark application.")
    spark_ui: str | None = Field(description="URL of the Spark web UI.")
    ticks: int | None = Field(description="Number of ticks in this term.")
    commits: int | None = Field(description="Number of commits in this term.")
    tick_ms: float | None = Field(description="Median duration of the last hundred ticks, in milliseconds.")
    commit_ms: float | None = Field(description="Median duration of the last hundred commits, in milliseconds.")
    slow_loop: str | None = Field(
        description="Loop of it that has been at the same work for unusually long, or hangs.", examples=["tick"]
    )
    slow_loop_s: float | None = Field(description="Seconds that this loop has been at it.")


class Health(Resource):
    """Whether the server and the manager are working."""

    status: Literal["ok"] = Field(description="`ok`: the state can be read.")
    manager: Literal["leading", "none"] = Field(description="`leading` if a manager is running, else `none`.")
    detail: str | None = Field(description="What to do if something is wrong.")
    leader: ManagerStatus | None = Field(
        description="The manager of the last term. null without a token, and before the first term."
    )
    version: str = Field(description="Version of the server.")


class Pool(Resource):
    """A limit on the number of running tasks."""

    name: str = Field(description="Name of the pool.")
    slots: int = Field(description="Number of task slots.")
    weight: int = Field(description="Weight in Spark's fair scheduler: its share of the cores.")
    min_share: int = Field(
        description="Minimum share in Spark's fair scheduler: the number of cores that it gets first."
    )
    memory_mb: int | None = Field(description="Memory limit of each task's process, in MB. null: no limit.")
    nice: int | None = Field(description="Niceness of the processes of its tasks. null: 5, and 10 in a backfill.")
    used: int = Field(description="Number of slots used by running tasks.")
    free: int = Field(description="Number of free slots.")
    queued: int = Field(
        description="Number of task instances that were handed to the executor and wait for a slot. They use no slot."
    )
    running: int = Field(description="Number of running task instances.")


NotificationState = Literal["waiting", "sent", "failed"]


NotificationEvent = Literal["failed", "late", "deadlocked", "done"]


class Notification(Resource):
    """A message about a run or a backfill for one target of the configuration."""

    target: str = Field(description="Name of the target.", examples=["ops"])
    event: NotificationEvent = Field(description="Event that it reports.")
    state: NotificationState = Field(
        description="`waiting` until it is sent. `failed`: given up after a day and 20 attempts."
    )
    dag_id: str = Field(description="Id of the DAG.", examples=["flights"])
    run_id: str | None = Field(description="Id of the run that it is about.")
    backfill_id: str | None = Field(description="Id of the backfill that it is about.")
    title: str = Field(description="First line of the message.")
    text: str = Field(description="Rest of the message. Errors of a backfill are added when it is sent.")
    created_at: Instant = Field(description="When it was created, together with what it reports.")
    ended_at: Instant | None = Field(description="When it was sent or given up.")
    failures: int = Field(description="Number of failed attempts to send it.")
    error: str | None = Field(description="Error of the last failed attempt.")
