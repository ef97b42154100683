"""The console of `up`, for the person at this machine."""

from pathlib import Path

from headway.client.client import login_name
from headway_console.settings import ConsoleSettings
from headway_console.wiring import ConsoleService, LocalCredentials, start_console
from headway_service_kit.health import AddressInUse
from msgspec.structs import replace

from headway_cli.up.local_credentials import Secrets, remember_port


async def start_local_console(
    settings: ConsoleSettings, local: Secrets, *, folder: Path, give_up_after: int
) -> ConsoleService:
    """Start it; if any port is right, where it was the last time, unless that is taken now."""
    settings = replace(settings, session_key=settings.session_key or local.session_key)
    person = LocalCredentials(name=login_name(), token=local.token, ticket_key=local.ticket_key)
    host, _, port = settings.console_address.rpartition(":")
    if port != "0":
        return await start_console(settings, local=person, give_up_after=give_up_after)
    last = replace(settings, console_address=f"{host}:{local.port}")
    try:
        console = await start_console(last, local=person, give_up_after=give_up_after)
    except AddressInUse:
        console = await start_console(settings, local=person, give_up_after=give_up_after)
    remember_port(folder, local, console.port)
    return console
