"""Checks of the console, and of the system that it reports: leader, passes, workers, jobs."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from headway.client.http_control import HttpControl
from headway_clock import utc_now
from headway_console.public import Overview, page_of_jobs, read_overview, state_of
from headway_errors import RequestFailed
from headway_postgres_kit import DATABASE_CLOCK, Database
from msgspec import Struct

from headway_cli.doctor.findings import Area, Finding
from headway_cli.serve.session import ConsoleAddress
from headway_cli.terminal.output import counted

_CONSOLE, _SYSTEM = Area("console"), Area("system")
_JOBS = 500

# The name of each pass in a finding, and the service whose log to read.
_PASSES = {
    "tick": ("tick", "scheduler"),
    "scheduler_outbox": ("scheduler's relay", "scheduler"),
    "dispatcher_outbox": ("dispatcher's relay", "dispatcher"),
    "dispatcher_intake": ("dispatcher's intake", "dispatcher"),
    "scheduler_intake": ("scheduler's intake", "scheduler"),
    "projector": ("projector", "dispatcher"),
}


class Job(Struct, frozen=True, kw_only=True):
    """A declared job: its manifests, and the live workers that serve it."""

    name: str
    manifests: int
    workers: int


class Person(Struct, frozen=True, kw_only=True):
    """The identity that the console assigns to our token."""

    name: str
    role: str | None


class ConsoleFacts(Struct, frozen=True, kw_only=True):
    """Answers of the console."""

    where: str
    person: Person
    overview: Overview
    ours: datetime
    jobs: list[Job] = []


async def ask_console(address: ConsoleAddress) -> ConsoleFacts:
    """Ask the console for our identity, the overview and the jobs."""
    async with HttpControl(address.url, token=address.token) as control:
        return ConsoleFacts(
            where=control.url,
            person=await control.show("/me", Person),
            overview=await control.show("/overview", Overview),
            ours=utc_now(),
            jobs=await control.list("/jobs", {}, Job),
        )


async def read_system(database: Database, orphan_seconds: float) -> list[Finding]:
    """Check the system by its tables, without a console."""
    async with database.acquire() as connection:
        now = await DATABASE_CLOCK.now(connection)
        since = now - timedelta(seconds=orphan_seconds)
        overview = await read_overview(connection, now=now, heard_since=since)
        page = await page_of_jobs(connection, heard_since=since, limit=_JOBS)
    jobs = [Job(name=job.name, manifests=job.manifests, workers=job.workers) for job in page.items]
    return [*judge_overview(overview), *judge_jobs(jobs)]


def judge_failure(where: str, error: RequestFailed) -> Finding:
    """Report that the console does not answer as one would."""
    text = str(error).partition("\n")[0]
    remedy = "start 'headway console', or 'headway up'"
    if "does not know you" in text:
        remedy = "set HEADWAY_TOKEN to a token of its file; 'headway token new' makes one"
    elif "cannot be read" in text:
        remedy = "let HEADWAY_URL name a console of this version"
    return _CONSOLE.trouble("reach", f"{where}: {text}", remedy)


def judge_console(facts: ConsoleFacts) -> list[Finding]:
    """Judge the console and the system that it reports."""
    person = f"{facts.person.name} ({facts.person.role or 'none'})"
    return [
        _CONSOLE.ok("reach", f"{facts.where} knows you as {person}"),
        _CONSOLE.clock(facts.overview.now, facts.ours, "commands and console show times"),
        *judge_overview(facts.overview),
        *judge_jobs(facts.jobs),
    ]


def judge_overview(overview: Overview) -> Iterator[Finding]:
    """Judge the leader, the passes, the workers and the open problems."""
    leader, counts = overview.health.leader, overview.counts
    if leader is None:
        remedy = "start 'headway scheduler'; with HEADWAY_TICK=off it never does"
        yield _SYSTEM.warning("leader", "no scheduler has ticked yet", remedy)
    else:
        yield _SYSTEM.ok("leader", f"{leader.holder}, term {leader.epoch}")
    yield from list(_judge_passes(overview)) or [_SYSTEM.ok("passes", "all keep up")]
    if counts.workers:
        yield _SYSTEM.ok("workers", f"{counts.workers} alive, {counts.slots} slots")
    else:
        yield _SYSTEM.trouble("workers", "none is alive: work waits", "start 'headway worker'")
    if counts.dead_letters:
        letters = counted(counts.dead_letters, "open dead letter")
        text = f"{letters}, {counted(counts.blocked, 'manifest')} blocked"
        yield _SYSTEM.warning("dead letters", text, "see 'headway dead-letters'")
    if counts.troubled:
        remedy = "'headway manifests' lists them, 'headway explain ID' says why"
        yield _SYSTEM.trouble("manifests", f"{counts.troubled} cannot be scheduled", remedy)


def _judge_passes(overview: Overview) -> Iterator[Finding]:
    for backlog in overview.health.backlogs:
        title, service = _PASSES.get(backlog.name, (backlog.name, "service"))
        state = state_of(backlog, now=overview.now)
        if state == "ok" or backlog.oldest_at is None:
            continue
        age = (overview.now - backlog.oldest_at).total_seconds()
        text = f"the {title} is {state}: {backlog.waiting} waiting, the oldest for {age:.0f} s"
        report = _SYSTEM.trouble if state == "stuck" else _SYSTEM.warning
        yield report("passes", text, f"check that a {service} runs, see its log, and check NATS")
    if not overview.health.dispatchers:
        text = "no dispatcher has sent a heartbeat: nothing runs"
        yield _SYSTEM.trouble("passes", text, "start 'headway dispatcher'")


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
