"""Change whole applications, each in a transaction of its own and with an audit entry."""

from datetime import datetime
from typing import Any

from headway.define.definitions import API_OWNER, Definitions
from headway_contract.definitions import GiveBackAppRequest, RenameAppRequest, RetireAppRequest
from headway_contract.fields import Changed
from headway_decisions.declaring.lookup import by_whom
from headway_decisions.wording import counted, utc
from headway_errors import Conflict, Invalid, NotFound
from headway_postgres_kit import Connection

from headway_scheduler import store
from headway_scheduler.declare import prune
from headway_scheduler.declare.declare import members_to_switch
from headway_scheduler.declare.write import remove_empty_groups, write_groups, write_jobs
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.tick import reschedule_wake

_SEE = "see 'headway apps'"


async def rename(connection: Connection, request: RenameAppRequest, *, now: datetime) -> Changed:
    """Move everything that an application owns to another name, with its history."""
    await _lock(connection, request.app)
    if request.to in (request.app, API_OWNER):
        raise Invalid(f"application {request.app!r} cannot be renamed to {request.to!r}: {_SEE}")
    if await connection.fetchrow(store.applications["read"], request.to) is not None:
        raise Conflict(
            f"application {request.to!r} exists already: retire it first ('headway apps retire "
            f"{request.to}'), or choose another name"
        )
    rows = await connection.fetch(store.applications["manifests"], request.app)
    # In the lock order of the tick, to avoid a deadlock.
    await store.lock_manifests(connection, [row["id"] for row in rows])
    names = (request.app, request.to)
    await connection.execute(store.applications["rename"], *names)
    await connection.execute(store.applications["rename_manifests"], *names)
    await connection.execute(store.applications["rename_jobs"], *names)
    await connection.execute(store.applications["rename_groups"], *names)
    data = {"from": request.app, "to": request.to, "manifests": len(rows)}
    await store.audit(
        connection,
        "headway.application.renamed.v1",
        store.operator(request),
        [(name, data) for name in names],
        now=now,
    )
    return Changed(
        text=f"{request.app}: renamed to {request.to}, with {counted(len(rows), 'manifest')}; "
        "start its code under that name"
    )


async def retire(connection: Connection, request: RetireAppRequest, *, now: datetime) -> Changed:
    """Prune the manifests of an application, retire its jobs, and delete it."""
    await _lock(connection, request.app)
    rows = await connection.fetch(store.applications["manifests"], request.app)
    own = {row["id"] for row in rows}
    # The same as a declaration without definitions, followed by a prune.
    nothing = Definitions(owner=request.app)
    others = await members_to_switch(connection, nothing) - own
    # All of them at once, in the lock order of the tick, to avoid a deadlock.
    await connection.fetch(store.manifests["lock_with_children"], [*own, *others], [*own])
    await skip_missed_during_pause(connection, sorted(others), now=now)
    source = store.operator(request)
    jobs = await write_jobs(connection, nothing, source, now)
    await write_groups(connection, nothing, [], source=source, now=now)
    reason = f"the application {request.app} was retired"
    pruned = await prune.mark(connection, sorted(own), source=source, reason=reason, now=now)
    await reschedule_wake(connection, sorted(others), now=now)
    # One-shots whose time came while their group was disabled are over.
    await connection.fetch(store.manifests["retire"], sorted(others))
    await connection.execute(store.applications["release_groups"], request.app)
    await remove_empty_groups(connection, now=now, owner=request.app)
    await connection.execute(store.applications["remove"], request.app)
    entry = (request.app, {"manifests": pruned, "jobs": jobs})
    await store.audit(connection, "headway.application.retired.v1", source, [entry], now=now)
    return Changed(
        text=f"{request.app}: retired; {counted(len(pruned), 'manifest')} will be deleted when "
        f"their live runs have ended, {counted(len(jobs), 'job')} retired. Code that starts under "
        "this name declares it anew"
    )


async def give_back(
    connection: Connection, request: GiveBackAppRequest, *, now: datetime
) -> Changed:
    """Let the code of an application declare it again, whatever its generation."""
    known = await _lock(connection, request.app)
    if known["source"] == "code":
        return Changed(text=f"{request.app}: nothing to change, its code declares it")
    await connection.execute(store.applications["give_back"], request.app)
    data = {"source": "code", "before": {"source": "files", "generation": known["generation"]}}
    kind = "headway.application.given_back.v1"
    await store.audit(connection, kind, store.operator(request), [(request.app, data)], now=now)
    return Changed(text=f"{request.app}: its code declares it at its next start")


async def _lock(connection: Connection, name: str) -> Any:
    """Lock declarations and read the application; raises if it does not exist."""
    await connection.execute(store.manifests["lock_declaring"], store.DECLARE_LOCK)
    row = await connection.fetchrow(store.applications["read"], name)
    if row is not None:
        return row
    if name == API_OWNER:
        raise Conflict(
            f"{API_OWNER!r} is no application but the owner of manifests made at run time: delete "
            "them with 'headway delete'"
        )
    last = await connection.fetchrow(store.applications["renamed"], name)
    if last is None:
        raise NotFound(f"there is no application {name!r}: {_SEE}")
    verb = f"renamed to {last['to']!r}" if last["to"] else "retired"
    when = f"{utc(last['occurred_at'])} {by_whom(last['source'])}"
    raise NotFound(f"there is no application {name!r}: it was {verb} at {when}")
