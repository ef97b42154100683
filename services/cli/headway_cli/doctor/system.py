"""Checks of the console, and of the system that it reports: leader, passes, workers, jobs."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
from headway.client.http_control import HttpControl
from headway_clock import utc_now
from headway_console.public import Overview, page_of_jobs, read_overview, state_of
from headway_contract.routes import API
from headway_errors import RequestFailed
from headway_postgres_kit import DATABASE_CLOCK, Database
from msgspec import Struct

from headway_cli.doctor.findings import Area, Finding
from headway_cli.serve.session import ConsoleAddress
from headway_cli.terminal.output import counted

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
    """A declared job: its manifests, and the live workers that serve it."""

    name: str
    manifests: int
    workers: int


class _JobPage(Struct, frozen=True, kw_only=True):
    items: list[Job]
    next: str | None = None


class Person(Struct, frozen=True, kw_only=True):
    """The identity that the console assigns to our token."""

    name: str
    role: str | None


class ConsoleFacts(Struct, frozen=True, kw_only=True):
    """Answers of the console; `problem` is set if it does not answer."""

    where: str
    problem: str = ""
    person: Person | None = None
    overview: Overview | None = None
    asked_at: datetime | None = None
    jobs: list[Job] = []


async def ask_console(address: ConsoleAddress) -> ConsoleFacts:
    """Ask the console for our identity, the overview and the jobs."""
    try:
        async with HttpControl(address.url, token=address.token) as control:
            person = await control.call("GET", f"{API}/me")
            overview = await control.call("GET", f"{API}/overview")
            return ConsoleFacts(
                where=control.url,
                person=msgspec.json.decode(person, type=Person),
                overview=msgspec.json.decode(overview, type=Overview),
                asked_at=utc_now(),
                jobs=await _read_jobs(control),
            )
    except RequestFailed as error:
        return ConsoleFacts(where=address.url, problem=str(error).partition("\n")[0])
    except msgspec.DecodeError as error:
        problem = f"its answer cannot be read, so it is not a console ({error})"
        return ConsoleFacts(where=address.url, problem=problem)


async def _read_jobs(control: HttpControl) -> list[Job]:
    found: list[Job] = []
    cursor: list[tuple[str, str]] = []
    while True:
        query = [("limit", str(_PAGE)), *cursor]
        body = await control.call("GET", f"{API}/jobs", query=query)
        page = msgspec.json.decode(body, type=_JobPage)
        found += page.items
        if page.next is None:
            return found
        cursor = [("cursor", page.next)]


async def read_system(database: Database, orphan_seconds: float) -> list[Finding]:
    """Check the system by its tables, without a console."""
    async with database.acquire() as connection:
        now = await DATABASE_CLOCK.now(connection)
        since = now - timedelta(seconds=orphan_seconds)
        overview = await read_overview(connection, now=now, heard_since=since)
        page = await page_of_jobs(connection, heard_since=since, limit=_PAGE)
    jobs = [Job(name=job.name, manifests=job.manifests, workers=job.workers) for job in page.items]
    return [*judge_overview(overview), *judge_jobs(jobs)]


def judge_console(facts: ConsoleFacts) -> list[Finding]:
    """Judge the console and the system that it reports."""
    if facts.person is None or facts.overview is None or facts.asked_at is None:
        remedy = "start 'headway console', or 'headway up'"
        if "does not know you" in facts.problem:
            remedy = "set HEADWAY_TOKEN to a token of its file; 'headway token new' makes one"
        return [_CONSOLE.trouble("reach", f"{facts.where}: {facts.problem}", remedy)]
    person = f"{facts.person.name} ({facts.person.role or 'none'})"
    return [
        _CONSOLE.ok("reach", f"{facts.where} knows you as {person}"),
        _CONSOLE.clock(facts.overview.now, facts.asked_at, "commands and console show times"),
        *judge_overview(facts.overview),
        *judge_jobs(facts.jobs),
    ]


def judge_overview(overview: Overview) -> Iterator[Finding]:
    """Judge the leader, the passes, the workers and the open problems."""
    leader, counts = overview.health.leader, overview.counts
    if leader is None:
        yield _SYSTEM.warning(
            "leader",
            "no scheduler has ticked yet",
            "start 'headway scheduler'; with HEADWAY_TICK=off it never does",
        )
    else:
        yield _SYSTEM.ok("leader", f"{leader.holder}, term {leader.epoch}")
    yield from _judge_passes(overview)
    if counts.workers:
        yield _SYSTEM.ok("workers", f"{counts.workers} alive, {counts.slots} slots")
    else:
        yield _SYSTEM.trouble("workers", "none is alive: work waits", "start 'headway worker'")
    if counts.dead_letters:
        yield _SYSTEM.warning(
            "dead letters",
            f"{counted(counts.dead_letters, 'open dead letter')}, "
            f"{counted(counts.blocked, 'manifest')} blocked",
            "see 'headway dead-letters'",
        )
    if counts.troubled:
        yield _SYSTEM.trouble(
            "manifests",
            f"{counts.troubled} cannot be scheduled",
            "'headway manifests' lists them, 'headway explain ID' says why",
        )


def _judge_passes(overview: Overview) -> list[Finding]:
    found = []
    for backlog in overview.health.backlogs:
        title, remedy = _PASSES.get(backlog.name, (backlog.name, "see the services' logs"))
        state = state_of(backlog, now=overview.now)
        if state == "ok" or backlog.oldest_at is None:
            continue
        age = (overview.now - backlog.oldest_at).total_seconds()
        text = f"the {title} is {state}: {backlog.waiting} waiting, the oldest for {age:.0f} s"
        report = _SYSTEM.trouble if state == "stuck" else _SYSTEM.warning
        found.append(report("passes", text, remedy))
    if not overview.health.dispatchers:
        text = "no dispatcher has sent a heartbeat: nothing runs"
        found.append(_SYSTEM.trouble("passes", text, "start 'headway dispatcher'"))
    return found or [_SYSTEM.ok("passes", "all keep up")]


def judge_jobs(jobs: list[Job]) -> list[Finding]:
    """Check that a live worker serves every job that manifests use."""
    return [
        _SYSTEM.trouble(
            "jobs",
            f"no live worker serves job {job.name} of {counted(job.manifests, 'manifest')}",
            f"start a worker that has it: 'headway worker --app APP' with job {job.name!r}",
        )
        for job in jobs
        if job.manifests and not job.workers
    ] or [_SYSTEM.ok("jobs", f"{len(jobs)} declared, every used one is served")]
