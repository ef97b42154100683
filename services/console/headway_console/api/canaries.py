"""Canaries: dead letters of one failure, retried one, then ten, then all."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID, uuid5

from headway.client.control import NotThere, Refused
from headway_contract.control import Text
from headway_contract.routes import LETTERS, Route
from litestar import Request
from msgspec import Meta, Struct

from headway_console.api.endpoints import Endpoint
from headway_console.canaries import Canaries, CanaryState, Progress, Step

# The canary of a key has always the same id, by which it is found again.
_BY_KEY = UUID("3f0f9d1e-8b0a-4a9e-9a5c-5f1c6a3d2b47")


class BeginCanaryRequest(Struct, frozen=True, kw_only=True):
    """Retry the dead letters of a failure with care. With a `key` it is begun once."""

    fingerprint: Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
    key: Text | None = None


class CanaryQuestion(Struct, frozen=True, kw_only=True):
    """One canary."""

    canary: UUID


class CanaryStatus(Struct, frozen=True, kw_only=True):
    """How a canary stands: each step with what became of it, and why it goes on or not.

    `size` of a step is none where it means all that are left.
    """

    id: UUID
    fingerprint: str
    actor: str
    began_at: datetime
    ended_at: datetime | None
    awaiting: int
    state: CanaryState
    reason: str
    step: int
    steps: list[Step]


async def find_canary(request: Request[Any, Any, Any], canary: UUID) -> Progress:
    """How one stands; raises `NotThere`."""
    canaries: Canaries = request.app.state.canaries
    found = await canaries.find(canary)
    if found is None:
        raise NotThere(
            f"nobody knows a canary {canary}: it has retried nothing, or ended more than a week ago"
        )
    return found


async def stop_canary(request: Request[Any, Any, Any], canary: UUID) -> Progress:
    """Go no further with one; raises `Refused` if another console runs it."""
    canaries: Canaries = request.app.state.canaries
    found = await find_canary(request, canary)
    if found.state == "running" and canaries.read(canary) is None:
        raise Refused(
            f"canary {canary} does not run in this console: the one that began it has stopped, or "
            "is another"
        )
    canaries.stop_one(canary, actor=request.user.name)
    return canaries.read(canary) or found


async def _begin(request: Request[Any, Any, Any], asked: BeginCanaryRequest) -> CanaryStatus:
    canaries: Canaries = request.app.state.canaries
    canary = None if asked.key is None else uuid5(_BY_KEY, asked.key)
    begun = await canaries.begin(asked.fingerprint, actor=request.user.name, canary=canary)
    return _status(begun)


async def _show(request: Request[Any, Any, Any], asked: CanaryQuestion) -> CanaryStatus:
    return _status(await find_canary(request, asked.canary))


async def _stop(request: Request[Any, Any, Any], asked: CanaryQuestion) -> CanaryStatus:
    return _status(await stop_canary(request, asked.canary))


def _status(told: Progress) -> CanaryStatus:
    fields = {name: getattr(told, name) for name in CanaryStatus.__struct_fields__}
    return CanaryStatus(**fields)


CANARIES: tuple[Endpoint, ...] = (
    Endpoint(
        route=Route(
            name="begin_canary", method="POST", path="/dead-letters/canaries", role="operator",
            tag=LETTERS, key="key", question=BeginCanaryRequest, answer=CanaryStatus,
            summary="Retry the dead letters of a failure: one, then ten, then all.",
        ),
        answered=_begin,
    ),
    Endpoint(
        route=Route(
            name="show_canary", method="GET", path="/dead-letters/canaries/{canary}",
            role="viewer", tag=LETTERS, question=CanaryQuestion, answer=CanaryStatus,
            summary="How far a canary is.",
        ),
        answered=_show,
    ),
    Endpoint(
        route=Route(
            name="stop_canary", method="POST", path="/dead-letters/canaries/{canary}/stop",
            role="operator", tag=LETTERS, question=CanaryQuestion, answer=CanaryStatus,
            summary="Let a canary go no further; what is under way goes on.",
        ),
        answered=_stop,
    ),
)  # fmt: skip
