"""The console of `up`, and the credentials of the local user, kept in the data folder."""

import getpass
from pathlib import Path

import msgspec
from headway_clock import new_secret
from headway_console.public import TOKEN_PREFIX, ConsoleSettings
from headway_console.wiring import ConsoleService, LocalCredentials, start_console
from headway_service_kit.health import AddressInUse
from msgspec import Struct
from msgspec.structs import replace

from headway_cli.serve.running import LOCAL_NAME, write_secret


class Credentials(Struct, frozen=True, kw_only=True):
    """Credentials of the local user: a token for commands, keys for sessions and sign-in links.

    `ticket_key` is new at every start. `port` is the last port of the console, so that an open
    page finds it again; 0 before the first start.
    """

    token: str
    ticket_key: str = ""
    session_key: str
    port: int = 0


def read_or_make(folder: Path) -> Credentials:
    """Read the credentials of a data folder; creates missing or unreadable ones."""
    try:
        kept = msgspec.json.decode((folder / LOCAL_NAME).read_bytes(), type=Credentials)
    except (OSError, msgspec.DecodeError):
        kept = Credentials(token=TOKEN_PREFIX + new_secret(), session_key=new_secret())
    credentials = replace(kept, ticket_key=new_secret())
    write_secret(folder / LOCAL_NAME, msgspec.json.encode(credentials))
    return credentials


async def start_local_console(
    settings: ConsoleSettings, credentials: Credentials, *, folder: Path, give_up_after: int
) -> ConsoleService:
    """Start the console; if any port will do, on its last port unless that is taken."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A container may run as a number that has no name.
        name = "unknown"
    person = LocalCredentials(name=name, token=credentials.token, ticket_key=credentials.ticket_key)
    settings = replace(settings, session_key=settings.session_key or credentials.session_key)
    host, _, port = settings.console_address.rpartition(":")
    if port != "0":
        return await start_console(settings, local=person, give_up_after=give_up_after)
    last = replace(settings, console_address=f"{host}:{credentials.port}")
    try:
        console = await start_console(last, local=person, give_up_after=give_up_after)
    except AddressInUse:
        console = await start_console(settings, local=person, give_up_after=give_up_after)
    if console.port != credentials.port:
        kept = replace(credentials, port=console.port)
        write_secret(folder / LOCAL_NAME, msgspec.json.encode(kept))
    return console
