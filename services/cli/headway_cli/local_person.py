"""The person who runs `up`: their way in, kept in the data folder from one start to the next."""

from pathlib import Path

import msgspec
from headway_clock import new_secret
from headway_console.access.tokens import PREFIX
from msgspec import Struct

from headway_cli.running import LOCAL_NAME, write_secret


class Secrets(Struct, frozen=True, kw_only=True):
    """What lets this person in: a token for commands, a ticket and a key for the browser."""

    token: str
    ticket: str
    session_key: str


def read_or_make(folder: Path) -> Secrets:
    """The secrets of a data folder; new ones where there are none that can be read."""
    path = folder / LOCAL_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Secrets)
    except (OSError, msgspec.DecodeError):
        made = Secrets(token=PREFIX + new_secret(), ticket=new_secret(), session_key=new_secret())
    write_secret(path, msgspec.json.encode(made))
    return made
