"""Checks of this machine, of the console, and of the system as the tables show it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import metadata
from typing import Any

from headway_console.public import Overview, page_of_jobs, read_overview, state_of
from headway_errors import RequestFailed
from headway_postgres_kit import DATABASE_CLOCK, Database
from msgspec import Struct

from headway_cli.doctor.findings import Area
from headway_cli.serve.known_settings import SECTIONS, is_wrong, settings_of
from headway_cli.serve.session import ConsoleAddress
from headway_cli.terminal.output import counted

_JOBS = 500


def check_local() -> Area:
    """Check the settings of this environment."""
    area = Area("here")
    area.ok("version", f"Headway {metadata.version('headway')}")
    known = [setting for section in SECTIONS for setting in settings_of(section)]
    for setting in filter(is_wrong, known):
        remedy = "correct it; 'headway settings' shows all settings, docs/settings.md explains them"
        area.trouble("settings", f"{setting.variable}: {setting.problem}", remedy)
    number = sum(setting.source not in (None, "default") for setting in known)
    area.otherwise_ok("settings", f"{number} set in the environment, all readable")
    return area


class Person(Struct, frozen=True, kw_only=True):
    """The identity that the console assigns to our token."""

    name: str
    role: str | None


async def check_console(address: ConsoleAddress) -> Area:
    """Check that the console answers and knows us."""
    area = Area("console")
    try:
        async with address.control() as control:
            person = await control.show("/me", Person)
    except RequestFailed as error:
        remedy = "start 'headway console', and set HEADWAY_TOKEN to a token of its file"
        area.trouble("reach", f"{address.url}: {str(error).partition(chr(10))[0]}", remedy)
    else:
        area.ok("reach", f"{address.url} knows you as {person.name} ({person.role})")
    return area


async def check_system(database: Database, orphan_seconds: float) -> tuple[Area, list[str]]:
    """Check the system by its tables; also returns the jobs that live workers serve."""
    async with database.acquire() as connection:
        now = await DATABASE_CLOCK.now(connection)
        since = now - timedelta(seconds=orphan_seconds)
        overview = await read_overview(connection, now=now, heard_since=since)
        page = await page_of_jobs(connection, heard_since=since, limit=_JOBS)
    return judge_system(overview, page.items), [job.name for job in page.items if job.workers]


def judge_system(overview: Overview, jobs: Sequence[Any]) -> Area:
    """Judge the leader, the passes, the workers, the open problems and the declared jobs."""
    area, health, counts = Area("system"), overview.health, overview.counts
    if health.leader is None:
        remedy = "start 'headway scheduler'; with HEADWAY_TICK=off it never does"
        area.warning("leader", "no scheduler has ticked yet", remedy)
    else:
        area.ok("leader", f"{health.leader.holder}, term {health.leader.epoch}")
    for backlog in health.backlogs:
        _judge_pass(area, backlog, overview.now)
    if not health.dispatchers:
        text = "no dispatcher has sent a heartbeat: nothing runs"
        area.trouble("passes", text, "start 'headway dispatcher'")
    area.otherwise_ok("passes", "all keep up")
    if not counts.workers:
        area.trouble("workers", "none is alive: work waits", "start 'headway worker'")
    area.otherwise_ok("workers", f"{counts.workers} alive, {counts.slots} slots")
    if counts.dead_letters:
        letters = counted(counts.dead_letters, "open dead letter")
        text = f"{letters}, {counted(counts.blocked, 'manifest')} blocked"
        area.warning("dead letters", text, "see 'headway dead-letters'")
    if counts.troubled:
        remedy = "'headway manifests' lists them, 'headway explain ID' says why"
        area.trouble("manifests", f"{counts.troubled} cannot be scheduled", remedy)
    for job in jobs:
        if job.manifests and not job.workers:
            text = f"no live worker serves job {job.name} of {counted(job.manifests, 'manifest')}"
            remedy = f"start a worker that has it: 'headway worker --app APP' with job {job.name!r}"
            area.trouble("jobs", text, remedy)
    area.otherwise_ok("jobs", f"{len(jobs)} declared, every used one is served")
    return area


def _judge_pass(area: Area, backlog: Any, now: datetime) -> None:
    state = state_of(backlog, now=now)
    if state != "ok" and backlog.oldest_at is not None:
        title = backlog.name.replace("_outbox", "'s relay").replace("_intake", "'s intake")
        age = (now - backlog.oldest_at).total_seconds()
        text = f"the {title} is {state}: {backlog.waiting} waiting, the oldest for {age:.0f} s"
        remedy = "check that scheduler and dispatcher run, see their logs, and check NATS"
        area.add("trouble" if state == "stuck" else "warning", "passes", text, remedy)
