"""The console, and what it tells of the running system: who may ask, who works, what waits."""

from datetime import datetime, timedelta

import msgspec
from headway.client.http_control import HttpControl
from headway_clock import utc_now
from headway_console.reading.manifests import page_of_jobs
from headway_console.reading.overview import Overview, read_overview
from headway_console.reading.system import state_of
from headway_contract.routes import API
from headway_errors import RequestFailed
from headway_postgres_kit import DATABASE_CLOCK, Database
from msgspec import Struct

from headway_cli.doctor.clocks import judge_clock
from headway_cli.doctor.findings import Area, Finding
from headway_cli.terminal.connect import AskSettings
from headway_cli.up.summary import counted

_CONSOLE, _SYSTEM = Area("console"), Area("system")
_PAGE = 500

_PASSES = {
    "tick": ("tick", "see the scheduler's log, and that one runs ('headway scheduler')"),
    "scheduler_outbox": ("scheduler's relay", "see the scheduler's log, and NATS"),
    "dispatcher_outbox": ("dispatcher's relay", "see the dispatcher's log, and NATS"),
    "dispatcher_intake": ("dispatcher's intake", "see the dispatcher's log"),
    "scheduler_intake": ("scheduler's intake", "see the scheduler's log"),
    "projector": ("projector", "see the dispatcher's log"),
}


class Job(Struct, frozen=True, kw_only=True):
    """A declared job, and who serves it."""

    name: str
    manifests: int
    workers: int


class JobPage(Struct, frozen=True, kw_only=True):
    """A page of jobs."""

    items: list[Job]
    next: str | None = None


class Person(Struct, frozen=True, kw_only=True):
    """Who we are to the console."""

    name: str
    role: str | None


class AskedFacts(Struct, frozen=True, kw_only=True):
    """What the console says. `problem` is why it says nothing, `ours` our time as it answered."""

    where: str
    problem: str = ""
    person: Person | None = None
    overview: Overview | None = None
    ours: datetime | None = None
    jobs: list[Job] = []


async def gather_asked(given: AskSettings) -> AskedFacts:
    """Ask the console."""
    try:
        async with HttpControl(given.url, token=given.token) as control:
            person = msgspec.json.decode(await control.call("GET", f"{API}/me"), type=Person)
            overview = msgspec.json.decode(
                await control.call("GET", f"{API}/overview"), type=Overview
            )
            return AskedFacts(
                where=control.url,
                person=person,
                overview=overview,
                ours=utc_now(),
                jobs=await _jobs(control),
            )
    except RequestFailed as error:
        return AskedFacts(where=given.url, problem=str(error).partition("\n")[0])
    except msgspec.DecodeError as error:
        return AskedFacts(
            where=given.url, problem=f"its answer cannot be read, so it is no console ({error})"
        )


async def read_standing(database: Database, orphan_seconds: float) -> tuple[Overview, list[Job]]:
    """What a console would tell, read from the tables themselves."""
    async with database.acquire() as connection:
        now = await DATABASE_CLOCK.now(connection)
        since = now - timedelta(seconds=orphan_seconds)
        overview = await read_overview(connection, now=now, heard_since=since)
        page = await page_of_jobs(connection, heard_since=since, limit=_PAGE)
    jobs = [Job(name=one.name, manifests=one.manifests, workers=one.workers) for one in page.items]
    return overview, jobs


async def _jobs(control: HttpControl) -> list[Job]:
    found: list[Job] = []
    cursor: list[tuple[str, str]] = []
    while True:
        query = [("limit", str(_PAGE)), *cursor]
        page = msgspec.json.decode(
            await control.call("GET", f"{API}/jobs", query=query), type=JobPage
        )
        found += page.items
        if page.next is None:
            return found
        cursor = [("cursor", page.next)]


def judge_asked(facts: AskedFacts) -> list[Finding]:
    """Whether the console lets us in, and whether the system it tells of does its work."""
    if facts.problem or facts.person is None:
        return [_CONSOLE.trouble("reach", f"{facts.where}: {facts.problem}", _remedy(facts))]
    role = facts.person.role or "none"
    found = [_CONSOLE.ok("reach", f"{facts.where} knows you as {facts.person.name} ({role})")]
    if facts.overview is not None and facts.ours is not None:
        found.append(
            judge_clock(_CONSOLE, facts.overview.now, facts.ours, "times would mean two things")
        )
        found += judge_overview(facts.overview)
    return [*found, *judge_jobs(facts.jobs)]


def _remedy(facts: AskedFacts) -> str:
    if "does not know you" in facts.problem:
        return "set HEADWAY_TOKEN to a token of its file; 'headway token new' makes one"
    return "start 'headway console', or 'headway up'"


def judge_overview(one: Overview) -> list[Finding]:
    """Whether somebody leads, the passes keep up, workers live, and nothing awaits a person."""
    return [*_leader(one), *_passes(one), *_workers(one), *_people(one)]


def _leader(one: Overview) -> list[Finding]:
    leader = one.health.leader
    if leader is None:
        return [
            _SYSTEM.warning(
                "leader",
                "no scheduler has ticked yet",
                "start 'headway scheduler'; with HEADWAY_TICK=off it never does",
            )
        ]
    # Late manifests tell of a leader that is gone; who has nothing to do need not tick.
    return [_SYSTEM.ok("leader", f"{leader.holder}, for the {leader.epoch}. time")]


def _passes(one: Overview) -> list[Finding]:
    found = []
    for backlog in one.health.backlogs:
        title, remedy = _PASSES.get(backlog.name, (backlog.name, "see the services' logs"))
        state = state_of(backlog, now=one.now)
        if state == "ok" or backlog.oldest_at is None:
            continue
        age = (one.now - backlog.oldest_at).total_seconds()
        told = f"the {title} is {state}: {backlog.waiting} wait, the oldest for {age:.0f} s"
        make = _SYSTEM.trouble if state == "stuck" else _SYSTEM.warning
        found.append(make("passes", told, remedy))
    if not one.health.dispatchers:
        found.append(
            _SYSTEM.trouble(
                "passes", "no dispatcher was heard of: nothing runs", "start 'headway dispatcher'"
            )
        )
    return found or [_SYSTEM.ok("passes", "all keep up")]


def _workers(one: Overview) -> list[Finding]:
    if one.counts.workers:
        told = f"{one.counts.workers} alive, {one.counts.slots} slots"
        return [_SYSTEM.ok("workers", told)]
    return [_SYSTEM.trouble("workers", "none is alive: work waits", "start 'headway worker'")]


def _people(one: Overview) -> list[Finding]:
    found = []
    if one.counts.dead_letters:
        found.append(
            _SYSTEM.warning(
                "dead letters",
                f"{counted(one.counts.dead_letters, 'letter')} to see to, which block "
                f"{counted(one.counts.blocked, 'manifest')}",
                "see 'headway dead-letters'",
            )
        )
    if one.counts.troubled:
        found.append(
            _SYSTEM.trouble(
                "manifests",
                f"{one.counts.troubled} cannot be scheduled",
                "'headway manifests' names them, 'headway explain ID' says why",
            )
        )
    return found


def judge_jobs(jobs: list[Job]) -> list[Finding]:
    """Whether a live worker serves every job that manifests name."""
    unserved = [one for one in jobs if one.manifests and not one.workers]
    if not unserved:
        return [_SYSTEM.ok("jobs", f"{len(jobs)} declared, every one that is used is served")]
    return [
        _SYSTEM.trouble(
            "jobs",
            f"no live worker serves job {one.name} of {counted(one.manifests, 'manifest')}",
            f"start a worker that has it: 'headway worker --app APP' with job {one.name!r}",
        )
        for one in unserved
    ]
