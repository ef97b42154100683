"""The person who runs `up`: their way in, kept in the data folder from one start to the next."""

from pathlib import Path

import msgspec
from headway_clock import new_secret
from headway_console.access.tokens import PREFIX
from msgspec import Struct, structs

from headway_cli.serve.running import LOCAL_NAME, write_secret


class Secrets(Struct, frozen=True, kw_only=True):
    """Credentials of this person: a token for commands, keys for sessions and sign-in links.

    `ticket_key` is new at every start. `port` is where the console was last, so that an open page
    finds it again; 0 before the first.
    """

    token: str
    ticket_key: str = ""
    session_key: str
    port: int = 0


def read_or_make(folder: Path) -> Secrets:
    """Read the secrets of a data folder for a start; make what is missing or unreadable."""
    try:
        kept = msgspec.json.decode((folder / LOCAL_NAME).read_bytes(), type=Secrets)
    except (OSError, msgspec.DecodeError):
        kept = Secrets(token=PREFIX + new_secret(), session_key=new_secret())
    made = structs.replace(kept, ticket_key=new_secret())
    write_secret(folder / LOCAL_NAME, msgspec.json.encode(made))
    return made


def remember_port(folder: Path, secrets: Secrets, port: int) -> None:
    """Note where the console is, for the next start."""
    if port != secrets.port:
        noted = structs.replace(secrets, port=port)
        write_secret(folder / LOCAL_NAME, msgspec.json.encode(noted))
