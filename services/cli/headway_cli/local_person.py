"""The person who runs `up`: their way in, kept in the data folder from one start to the next."""

from pathlib import Path

import msgspec
from headway_clock import new_secret
from headway_console.access.tokens import PREFIX
from msgspec import Struct, structs

from headway_cli.running import LOCAL_NAME, write_secret


class Secrets(Struct, frozen=True, kw_only=True):
    """What lets this person in: a token for commands, a ticket and a key for the browser.

    `port` is where the console was last, so that an open page finds it again; 0 before the first.
    """

    token: str
    ticket: str
    session_key: str
    port: int = 0


def read_or_make(folder: Path) -> Secrets:
    """The secrets of a data folder; new ones where there are none that can be read."""
    path = folder / LOCAL_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Secrets)
    except (OSError, msgspec.DecodeError):
        made = Secrets(token=PREFIX + new_secret(), ticket=new_secret(), session_key=new_secret())
    write_secret(path, msgspec.json.encode(made))
    return made


def remember_port(folder: Path, secrets: Secrets, port: int) -> None:
    """Note where the console is, for the next start."""
    if port != secrets.port:
        noted = structs.replace(secrets, port=port)
        write_secret(folder / LOCAL_NAME, msgspec.json.encode(noted))
