"""Requests about canaries: dead letters of one failure, retried 1, then 10, then all."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.control import Text

CanaryState = Literal["running", "stopped", "finished"]


class BeginCanaryRequest(Struct, frozen=True, kw_only=True):
    """Retry the dead letters of a failure in steps. With a `key` it begins once."""

    fingerprint: Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
    actor: Text = ""
    key: Text | None = None


class StopCanaryRequest(Struct, frozen=True, kw_only=True):
    """Stop a canary; work under way continues."""

    canary: UUID
    actor: Text = ""


class CanaryQuestion(Struct, frozen=True, kw_only=True):
    """Name one canary."""

    canary: UUID


class CanaryRef(Struct, frozen=True, kw_only=True):
    """The canary that a request began or found running."""

    canary: UUID


class CanaryStep(Struct, frozen=True, kw_only=True):
    """One step: its size (`None` for all remaining letters) and the number of letters by fate."""

    size: int | None
    fates: dict[str, int]


class CanaryStatus(Struct, frozen=True, kw_only=True):
    """The state of a canary: each step with its results, and the reason for what it does next."""

    id: UUID
    fingerprint: str
    actor: str
    began_at: datetime
    ended_at: datetime | None
    awaiting: int
    state: CanaryState
    reason: str
    step: int
    steps: list[CanaryStep]
