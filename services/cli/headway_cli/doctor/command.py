"""The command: gather, judge, print."""

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import click
from headway_dispatcher.public import DispatcherSettings
from headway_jetstream_kit import BrokerUnavailable
from headway_postgres_kit import DatabaseUnavailable, SessionsShared
from headway_service_kit.process import run

from headway_cli.doctor.findings import Area, Finding
from headway_cli.doctor.nats import check_broker
from headway_cli.doctor.postgresql import check_database
from headway_cli.doctor.system import check_console, check_local, check_system
from headway_cli.serve import settings
from headway_cli.serve.running import Running, find_running
from headway_cli.serve.servers import reach_broker, reach_database
from headway_cli.serve.session import ConsoleAddress, Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import counted, print_json, printable, progressing

IN_TROUBLE = 1
_REACH_SECONDS = 3.0
_COLOURS = {"ok": "green", "warning": "yellow", "trouble": "red"}


@command()
@options.database_option
@options.nats_option
def doctor(session: Session, database_url: str | None, nats_url: str | None) -> int:
    """Check the installation and print remedies.

    It checks the console of HEADWAY_URL, the database of HEADWAY_DATABASE_URL and the broker of
    HEADWAY_NATS_URL as far as they are set, or the 'headway up' of this folder. It changes
    nothing, but tests whether PostgreSQL and NATS can write to their disks. The exit code is 1 if
    anything is in trouble; warnings do not count.
    """
    given = {"url": session.url, "token": None, "database_url": database_url, "nats_url": nats_url}
    known = {name: value or settings.get(name) or "" for name, value in given.items()}
    named = known["url"] or known["database_url"] or known["nats_url"]
    # An `up` is checked as a whole: its servers do not belong to a console that was named.
    targets = Running(pid=0, **known) if named else find_running(session.data)
    with progressing("checking", quiet=session.as_json):
        findings = [*check_local(), *run(_check(targets))]
    (print_json if session.as_json else _print)(findings)
    return IN_TROUBLE if any(finding.verdict == "trouble" for finding in findings) else 0


async def _check(targets: Running) -> list[Finding]:
    """Check the console, the database with the system in it, and the broker."""
    jobs: list[str] = []
    patience: Any = {"name": "headway-doctor", "wait": _REACH_SECONDS}

    async def by_console(url: str) -> Area:
        return await check_console(ConsoleAddress(url=url, token=targets.token or None))

    async def by_database(url: str) -> Area:
        async with reach_database(url, **patience) as database:
            area = await check_database(database)
            if any(found.check == "schema" and found.verdict == "ok" for found in area):
                seconds = _dispatcher_settings(targets).orphan_timeout_seconds
                system, served = await check_system(database, seconds)
                jobs.extend(served)
                area += system
            return area

    async def by_broker(url: str) -> Area:
        credentials = settings.get("nats_creds")
        async with reach_broker(url, credentials=credentials, **patience) as broker:
            return await check_broker(broker, _dispatcher_settings(targets), jobs)

    return [
        *await _guard("console", "HEADWAY_URL", targets.url, by_console),
        *await _guard("postgresql", "HEADWAY_DATABASE_URL", targets.database_url, by_database),
        *await _guard("nats", "HEADWAY_NATS_URL", targets.nats_url, by_broker),
    ]


async def _guard(
    name: str, variable: str, target: str | None, check: Callable[[str], Awaitable[Area]]
) -> Area:
    """Return the findings of a check, or the error that prevented it."""
    area = Area(name)
    if not target:
        text = f"not checked: {variable} is not set, and no 'headway up' runs here"
        area.warning("reach", text, f"set {variable} to check it")
        return area
    try:
        return await check(target)
    except (DatabaseUnavailable, BrokerUnavailable) as error:
        remedy = f"start it (its log says why it ended), or correct {variable}"
        area.trouble("reach", str(error), remedy)
    except SessionsShared as error:
        area.trouble("sessions", error.found, error.remedy)
    except Exception as error:  # noqa: BLE001 - a failed check must not hide the others
        text = f"the check itself failed: {type(error).__name__}: {error}"
        area.trouble("check", text, "remove its cause, or run it with --debug")
    return area


def _dispatcher_settings(targets: Running) -> DispatcherSettings:
    """Read the settings that a dispatcher would read here; an `up` has smaller streams."""
    local = {"HEADWAY_STREAM_MAX_BYTES": str(settings.LOCAL_STREAM_BYTES)} if targets.pid else {}
    addresses = {"HEADWAY_DATABASE_URL": "postgresql://", "HEADWAY_NATS_URL": "nats://anywhere"}
    environment: dict[str, Any] = {**local, **os.environ, **addresses}
    return settings.read(DispatcherSettings, {}, environment)


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.area) for finding in findings)
    for finding in findings:
        mark = click.style(finding.verdict.ljust(7), fg=_COLOURS[finding.verdict])
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        text = f"{finding.check}: {printable(finding.found)}{remedy}"
        click.echo(f"{mark}  {finding.area.ljust(width)}  {text}")
    counts = Counter(finding.verdict for finding in findings)
    warnings = f", {counted(counts['warning'], 'warning')}" if counts["warning"] else ""
    trouble = f"{counts['trouble']} in trouble" if counts["trouble"] else "nothing in trouble"
    click.echo(f"{counts['ok']} ok{warnings}, {trouble}")
