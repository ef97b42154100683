"""Checks of this machine, of the console, and of the system that the console reports."""

import stat
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from headway_clock import utc_now
from headway_console.public import Overview, page_of_jobs, read_overview, state_of
from headway_errors import RequestFailed
from headway_postgres_kit import DATABASE_CLOCK, Database
from msgspec import Struct

from headway_cli.doctor.findings import Area
from headway_cli.serve.known_settings import SECTIONS, is_wrong, settings_of
from headway_cli.serve.running import LOCAL_NAME, NOTE_NAME, NothingRuns, is_alive, read_note
from headway_cli.serve.session import ConsoleAddress
from headway_cli.terminal.output import counted

_SECRETS = (NOTE_NAME, LOCAL_NAME, "postgres.password", "nats.password", "nats.conf")
_JOBS = 500

# The service of each pass whose name does not begin with it.
_SERVICES = {"tick": "scheduler", "projector": "dispatcher"}


def check_local(data: Path) -> Area:
    """Check the settings, and the data folder of a `headway up`."""
    area = Area("here")
    area.ok("version", f"Headway {metadata.version('headway-cli')}")
    known = [setting for section in SECTIONS for setting in settings_of(section)]
    for setting in filter(is_wrong, known):
        remedy = "correct it; 'headway settings' shows all settings, docs/settings.md explains them"
        area.trouble("settings", f"{setting.variable}: {setting.problem}", remedy)
    number = sum(setting.source not in (None, "default") for setting in known)
    area.otherwise_ok("settings", f"{number} set in the environment, all readable")
    for path in (data / name for name in _SECRETS):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            area.trouble("secrets", f"{path} can be read by others", f"run: chmod 600 {path}")
    try:
        note = read_note(data)
        if note is not None and not is_alive(note.pid):
            text = f"the 'headway up' of {data} ended without a clean stop"
            area.warning("folder", text, "start it again: it continues where it was")
    except NothingRuns as error:
        area.trouble("folder", str(error), "start 'headway up' again")
    return area


class Job(Struct, frozen=True, kw_only=True):
    """A declared job: its manifests, and the live workers that serve it."""

    name: str
    manifests: int
    workers: int


class Person(Struct, frozen=True, kw_only=True):
    """The identity that the console assigns to our token."""

    name: str
    role: str | None


async def check_console(address: ConsoleAddress) -> tuple[Area, list[Job] | None]:
    """Check the console and the system that it reports; also returns the jobs if it answers."""
    area = Area("console")
    try:
        async with address.control() as control:
            person = await control.show("/me", Person)
            overview, ours = await control.show("/overview", Overview), utc_now()
            jobs = await control.list("/jobs", {}, Job)
    except RequestFailed as error:
        judge_failure(area, address.url, error)
        return area, None
    area.ok("reach", f"{control.url} knows you as {person.name} ({person.role or 'none'})")
    area.clock(overview.now, ours, "commands and console show times")
    area += judge_system(overview, jobs)
    return area, jobs


def judge_failure(area: Area, where: str, error: RequestFailed) -> None:
    """Report that the console does not answer, or refuses us."""
    text = str(error).partition("\n")[0]
    remedy = "start 'headway console', or 'headway up'"
    if "does not know you" in text:
        remedy = "set HEADWAY_TOKEN to a token of its file; 'headway token new' makes one"
    elif "cannot be read" in text:
        remedy = "let HEADWAY_URL name a console of this version"
    area.trouble("reach", f"{where}: {text}", remedy)


async def read_system(database: Database, orphan_seconds: float) -> Area:
    """Check the system by its tables, without a console."""
    async with database.acquire() as connection:
        now = await DATABASE_CLOCK.now(connection)
        since = now - timedelta(seconds=orphan_seconds)
        overview = await read_overview(connection, now=now, heard_since=since)
        page = await page_of_jobs(connection, heard_since=since, limit=_JOBS)
    return judge_system(overview, page.items)


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
        service = _SERVICES.get(backlog.name) or backlog.name.partition("_")[0]
        title = backlog.name.replace("_outbox", "'s relay").replace("_intake", "'s intake")
        age = (now - backlog.oldest_at).total_seconds()
        text = f"the {title} is {state}: {backlog.waiting} waiting, the oldest for {age:.0f} s"
        remedy = f"check that a {service} runs, see its log, and check NATS"
        area.add("trouble" if state == "stuck" else "warning", "passes", text, remedy)
