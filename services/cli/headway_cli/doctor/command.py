"""The command: gather, decide, tell."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
from headway_dispatcher.settings import DispatcherSettings
from headway_jetstream_kit import BrokerUnavailable
from headway_postgres_kit import DatabaseUnavailable, SessionsShared
from headway_service_kit.process import run
from headway_service_kit.settings import InvalidSettings, given
from msgspec import Struct

from headway_cli.doctor.findings import Area, Finding
from headway_cli.doctor.machine import gather_machine, judge_machine
from headway_cli.doctor.service_checks import (
    AskedFacts,
    gather_asked,
    judge_asked,
    judge_jobs,
    judge_overview,
    read_standing,
)
from headway_cli.doctor.streams import gather_streams, judge_streams
from headway_cli.doctor.tables import gather_tables, judge_tables
from headway_cli.serve import settings
from headway_cli.serve.running import NothingRuns, Running, is_alive, read_note
from headway_cli.serve.wait_for_servers import reach_broker, reach_database
from headway_cli.terminal import options
from headway_cli.terminal.connect import AskSettings, Reached, asking, json_option, print_json
from headway_cli.terminal.progress import progressing
from headway_cli.terminal.tables import printable
from headway_cli.up.plan import STREAM_BYTES
from headway_cli.up.summary import counted

IN_TROUBLE = 1
_PATIENCE_SECONDS = 3.0
_COLOURS = {"ok": "green", "warning": "yellow", "trouble": "red"}


class Known(Struct, frozen=True, kw_only=True):
    """What is configured: addresses, by option, environment or the `up` of a folder."""

    asked: AskSettings | None
    database_url: str | None
    nats_url: str | None
    nats_creds: str | None
    # The streams of an `up` are smaller, unless it was told otherwise.
    embedded: bool


@click.command()
@options.database_option
@options.nats_option
@json_option
@asking
def doctor(reached: Reached, database_url: str | None, nats_url: str | None, as_json: bool) -> int:
    """Check the set-up, and say what to do about it.

    It looks at whatever is configured: the console of HEADWAY_URL, the database of
    HEADWAY_DATABASE_URL and the broker of HEADWAY_NATS_URL, or at the 'headway up' of this folder;
    what is not configured is left out, and said. It changes nothing, but tries whether PostgreSQL
    and NATS can write to their disks. The exit code is 1 if anything is in trouble; warnings are
    none.
    """
    known = _known(reached, database_url, nats_url)
    if known.asked is None and known.database_url is None and known.nats_url is None:
        raise NothingRuns(
            "there is nothing to look at: set HEADWAY_URL, HEADWAY_DATABASE_URL or "
            f"HEADWAY_NATS_URL, or start 'headway up' (none runs in {reached.data})"
        )
    with progressing("looking around", quiet=as_json):
        findings = [*judge_machine(gather_machine(reached.data)), *run(_examine(known))]
    if as_json:
        print_json(findings)
    else:
        _tell(findings)
    return IN_TROUBLE if any(one.verdict == "trouble" for one in findings) else 0


def _known(reached: Reached, database_url: str | None, nats_url: str | None) -> Known:
    running = _running(reached.data)
    stated = [
        reached.url or _set("url"),
        database_url or _set("database_url"),
        nats_url or _set("nats_url"),
    ]
    # An `up` is one whole: its servers are not those of a console that somebody else named.
    embedded = running is not None and not any(stated)
    if running is not None and embedded:
        return Known(
            asked=AskSettings(url=running.url, token=running.token),
            database_url=running.database_url,
            nats_url=running.nats_url,
            nats_creds=_set("nats_creds"),
            embedded=True,
        )
    return Known(
        asked=AskSettings(url=stated[0], token=_set("token")) if stated[0] else None,
        database_url=stated[1],
        nats_url=stated[2],
        nats_creds=_set("nats_creds"),
        embedded=False,
    )


def _set(name: str) -> str | None:
    try:
        return given(os.environ, name)
    except InvalidSettings:
        return None  # told with the settings


def _running(data: Path) -> Running | None:
    try:
        note = read_note(data)
    except NothingRuns:
        return None  # told with the folder
    return note if note is not None and is_alive(note.pid) else None


async def _examine(known: Known) -> list[Finding]:
    """Look at all that is known of, the parts beside each other."""
    asked = await _asked(known)
    serving = [one.name for one in asked.jobs if one.workers] if asked is not None else []
    untold = asked is None or bool(asked.problem)
    tables, streams = await asyncio.gather(
        _tables(known, with_system=untold), _streams(known, serving)
    )
    console = _left_out("console", "console", "HEADWAY_URL")
    if asked is not None:
        console = judge_asked(asked)
    return [*console, *tables, *streams]


async def _asked(known: Known) -> AskedFacts | None:
    return None if known.asked is None else await gather_asked(known.asked)


async def _tables(known: Known, *, with_system: bool) -> list[Finding]:
    """The database; `with_system` also what the console would have told of the system."""
    url = known.database_url
    if url is None:
        return _left_out("postgresql", "database", "HEADWAY_DATABASE_URL")

    async def look() -> list[Finding]:
        database = await reach_database(url, name="headway-doctor", wait=_PATIENCE_SECONDS)
        try:
            facts = await gather_tables(database)
            found = judge_tables(facts)
            if with_system and not any(facts.schemas.values()):
                seconds = _dispatcher_settings(known).orphan_timeout_seconds
                overview, jobs = await read_standing(database, seconds)
                found += [*judge_overview(overview), *judge_jobs(jobs)]
            return found
        finally:
            await database.close()

    return await _reached("postgresql", "HEADWAY_DATABASE_URL", look)


async def _streams(known: Known, jobs: list[str]) -> list[Finding]:
    url = known.nats_url
    if url is None:
        return _left_out("nats", "broker", "HEADWAY_NATS_URL")

    async def look() -> list[Finding]:
        wanted = _dispatcher_settings(known)
        broker = await reach_broker(
            url, name="headway-doctor", credentials=known.nats_creds, wait=_PATIENCE_SECONDS
        )
        try:
            return judge_streams(await gather_streams(broker, wanted, jobs))
        finally:
            await broker.close()

    return await _reached("nats", "HEADWAY_NATS_URL", look)


def _dispatcher_settings(known: Known) -> DispatcherSettings:
    """How streams should be, by the settings that the dispatcher would read here."""
    environment = {
        **({"HEADWAY_STREAM_MAX_BYTES": str(STREAM_BYTES)} if known.embedded else {}),
        **os.environ,
        "HEADWAY_DATABASE_URL": "postgresql://",
        "HEADWAY_NATS_URL": "nats://anywhere",
    }
    return settings.read(DispatcherSettings, {}, environment)


async def _reached(
    area: str, variable: str, look: Callable[[], Awaitable[list[Finding]]]
) -> list[Finding]:
    """What was found, or the one thing that kept us from looking."""
    try:
        return await look()
    except (DatabaseUnavailable, BrokerUnavailable) as error:
        return [
            Area(area).trouble(
                "reach", str(error), f"start it (its log says why it ended), or correct {variable}"
            )
        ]
    except SessionsShared as error:
        return [Area(area).trouble("sessions", error.found, error.remedy)]
    except InvalidSettings as error:
        told = str(error).replace("\n", "; ")
        return [Area(area).trouble("settings", told, "correct the settings")]
    except Exception as error:  # noqa: BLE001 - a check that fails must not hide the others
        told = f"the check itself failed: {type(error).__name__}: {error}"
        return [Area(area).trouble("check", told, "see to its cause, or run it with --debug")]


def _left_out(area: str, what: str, variable: str) -> list[Finding]:
    told = f"not looked at: {variable} is not set, and no 'headway up' runs here"
    return [Area(area).warning("reach", told, f"set {variable} to have the {what} checked, too")]


def _tell(findings: list[Finding]) -> None:
    width = max(len(one.area) for one in findings)
    for one in findings:
        mark = click.style(one.verdict.ljust(7), fg=_COLOURS[one.verdict])
        remedy = f"; {one.remedy}" if one.remedy else ""
        click.echo(f"{mark}  {one.area.ljust(width)}  {one.check}: {printable(one.found)}{remedy}")
    counts = Counter(one.verdict for one in findings)
    warnings = f", {counted(counts['warning'], 'warning')}" if counts["warning"] else ""
    trouble = f"{counts['trouble']} in trouble" if counts["trouble"] else "nothing in trouble"
    click.echo(f"{counts['ok']} ok{warnings}, {trouble}")
