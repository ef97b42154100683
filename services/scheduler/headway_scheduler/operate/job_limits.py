"""The limits of jobs that operators set. They stay over restarts until they are given back."""

from datetime import datetime

import msgspec
from headway_contract.scheduling import ChangeJobRequest
from headway_errors import NotFound
from headway_postgres_kit import Connection
from msgspec import UNSET

from headway_scheduler.declare.declare import job_changed
from headway_scheduler.fire.outbound_events import announce_job
from headway_scheduler.operate.change_messages import in_words
from headway_scheduler.operate.manifests import note_change, refuse_both
from headway_scheduler.store import DECLARE_LOCK, OUTBOX, manifests

_LIMITS = ("max_active", "rate")
# How many jobs a refusal names.
_MOST_NAMED = 20


async def change_job(connection: Connection, request: ChangeJobRequest, *, now: datetime) -> str:
    """Change the limits of a job; returns in words what was changed."""
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    row = await connection.fetchrow(manifests["lock_job"], request.job)
    if row is None:
        raise NotFound(await _no_such_job(connection, request.job))
    before: dict[str, object] = row["operator_limits"]
    stated = {name: value for name in _LIMITS if (value := getattr(request, name)) is not UNSET}
    refuse_both(f"job {request.job!r}", stated, request.give_back)
    after = {
        name: value
        for name, value in {**before, **msgspec.to_builtins(stated)}.items()
        if name not in request.give_back
    }
    if after == before:
        return f"job {request.job}: nothing to change"
    await connection.execute(manifests["limit_job"], request.job, after)
    [told] = await connection.fetch(manifests["job_limits"], [request.job])
    await OUTBOX.add(connection, [announce_job(job_changed(told), now=now)])
    # What holds from now on, whoever says so.
    changed = {name: told[name] for name in _LIMITS if name in stated or name in request.give_back}
    data = {**changed, "operator_limits": after, "before": {"operator_limits": before}}
    await note_change(connection, "headway.job.changed.v1", request, request.job, data, now)
    return f"job {request.job}: {in_words(changed)}"


async def _no_such_job(connection: Connection, name: str) -> str:
    rows = await connection.fetch(manifests["job_names"], _MOST_NAMED + 1)
    names = [row["name"] for row in rows]
    listed = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return f"there is no job {name!r}: " + (
        f"declared are {listed}" if names else "none is declared"
    )
