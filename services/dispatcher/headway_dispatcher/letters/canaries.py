"""Canaries: retry the dead letters of one failure in steps, and stop when the failure returns.

A canary is one row. The desk begins and stops it, and a pass of any dispatcher advances it, so
it survives a restart of every process. Each step is an ordinary retry in the name of the person
who began the canary. It retries letters that existed when it began, the oldest first.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import new_id
from headway_contract.dead_letters import BeginCanaryRequest, CanaryRef, CanaryStatus, CanaryStep
from headway_decisions.retries import dead_letters
from headway_decisions.retries.canaries import STEPS, Fate, Finished, RetryNext, Stopped, judge
from headway_errors import NotFound
from headway_postgres_kit import Connection, Database
from msgspec import structs

from headway_dispatcher import store
from headway_dispatcher.letters import letters
from headway_dispatcher.store import Times, canary_queries, letter_queries
from headway_dispatcher.wakeups import Wakeups

_CHECK_EVERY_SECONDS = 0.5
_END_STATES: dict[type[Any], str] = {Stopped: "stopped", Finished: "finished"}


async def begin(
    connection: Connection, request: BeginCanaryRequest, *, actor: str, times: Times
) -> CanaryRef:
    """Begin a canary, or return the one that runs for the same failure."""
    canary = new_id()
    steps = [CanaryStep(size=size, fates={}) for size in STEPS]
    status = await connection.execute(
        canary_queries["begin"],
        canary,
        request.fingerprint,
        actor,
        times.schedule,
        *dead_letters.parse_fingerprint(request.fingerprint),
        msgspec.to_builtins(steps),
    )
    if status == "INSERT 0 0":
        canary = await connection.fetchval(canary_queries["running_of"], request.fingerprint)
    return CanaryRef(canary=canary)


async def stop(connection: Connection, canary: UUID, *, actor: str, now: datetime) -> None:
    """Stop a canary; work under way continues, and an ended canary stays as it is."""
    await connection.execute(canary_queries["stop"], canary, f"stopped by {actor}", now)


async def read_status(connection: Connection, canary: UUID) -> CanaryStatus:
    """Return the status of a canary; raises `NotFound`."""
    row = await connection.fetchrow(canary_queries["status"], canary)
    if row is None:
        raise NotFound(f"there is no canary {canary}")
    return msgspec.convert(dict(row), CanaryStatus)


async def advance_canaries(database: Database, wake: Wakeups) -> float | None:
    """Advance every running canary by one step at most."""
    async with database.acquire() as connection:
        rows = await connection.fetch(canary_queries["running"])
    for row in rows:
        if await _advance(database, row["id"]):
            wake.gate.call()
            wake.relay.call()
    return _CHECK_EVERY_SECONDS if rows else None


async def _advance(database: Database, canary: UUID) -> bool:
    """Advance a canary, unless another dispatcher does; returns whether letters were retried."""
    async with database.transaction() as connection:
        await store.share_tombstone_lock(connection)
        row = await connection.fetchrow(canary_queries["lock"], canary)
        if row is None:
            return False
        times = await store.read_times(connection, database)
        fates = await _read_fates(connection, row["under_way"])
        under_way = [letter for letter, fate in fates.items() if fate == "under_way"]
        step, steps = row["step"], msgspec.convert(row["steps"], list[CanaryStep])
        settled = Counter({**steps[step].fates, "under_way": 0}) + Counter(fates.values())
        steps[step] = structs.replace(steps[step], fates=dict(settled))
        verdict = judge(step, [each.fates for each in steps], more=row["more"])
        more, place = row["more"], (row["after_at"], row["after_id"])
        if isinstance(verdict, RetryNext):
            taken, more, place = await _retry(connection, row, verdict.letters, times)
            under_way += taken
            step = verdict.step
            counts = +Counter({**steps[step].fates, "under_way": len(under_way)})
            steps[step] = structs.replace(steps[step], fates=dict(counts))
        end_state = _END_STATES.get(type(verdict))
        await connection.execute(
            canary_queries["record"],
            canary,
            end_state or "running",
            verdict.reason,
            None if end_state is None else times.schedule,
            step,
            msgspec.to_builtins(steps),
            under_way,
            more,
            *place,
        )
    return isinstance(verdict, RetryNext)


async def _read_fates(connection: Connection, under_way: Sequence[UUID]) -> dict[UUID, Fate]:
    """Return what became of letters; one that was deleted with its manifest has ended."""
    rows = await connection.fetch(canary_queries["fates"], under_way)
    found = {row["id"]: _fate(row) for row in rows}
    return {letter: found.get(letter, "ended") for letter in under_way}


def _fate(row: Any) -> Fate:
    if row["following"] is not None:
        return "came_back" if row["following"] == row["fingerprint"] else "failed_otherwise"
    if row["state"] != "retried":  # it waits for its slot, or a person acknowledged it
        return "under_way" if row["retry_requested_at"] is not None else "ended"
    if row["work"] != "settled":
        return "under_way"
    return "completed" if row["outcome"] == "completed" else "ended"


async def _retry(
    connection: Connection, row: Any, number: int, times: Times
) -> tuple[list[UUID], bool, tuple[datetime | None, UUID | None]]:
    """Retry the next letters; returns those under way, whether more are left, and the place."""
    found = await connection.fetch(
        letter_queries["chosen"],
        *(None, None, None),
        *dead_letters.parse_fingerprint(row["fingerprint"]),
        None,
        row["began_at"],
        row["after_at"],
        row["after_id"],
        number + 1,
    )
    page = found[:number]
    order = letters.RetryOrder(actor=row["actor"])
    results = await letters.retry(connection, [letter["id"] for letter in page], order, times=times)
    # Letters that another person resolved meanwhile are not part of the canary.
    taken = [result.dead_letter for result in results if result.result in ("retried", "waits")]
    last = page[-1] if page else None
    place = (row["after_at"], row["after_id"]) if last is None else (last["created_at"], last["id"])
    return taken, len(found) > len(page), place
