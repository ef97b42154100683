"""Sign-in links for the person at this machine: each works once, for ten minutes.

`up` and `headway sign-in` make them with a key that lies in the data folder and is new at every
start, so that a link found in an old log or a shell's history opens nothing.
"""

from datetime import datetime, timedelta

from headway_clock import new_secret
from msgspec import Struct

from headway_console.access.sessions import Revoked, Seal

_PURPOSE = "local sign-in"
_LASTS = timedelta(minutes=10)


class _Ticket(Struct, frozen=True, kw_only=True):
    id: str
    until: datetime


def sign_in_path(key: str, now: datetime) -> str:
    """Make the path of a link that signs the person in."""
    ticket = _Ticket(id=new_secret(), until=now + _LASTS)
    return f"/sign-in/local/{Seal(key.encode()).close(_PURPOSE, ticket)}"


class Tickets:
    """Takes each ticket that was made with the key once."""

    def __init__(self, key: str) -> None:
        self._seal = Seal(key.encode())
        self._used = Revoked()

    def redeem(self, sealed: str, now: datetime) -> bool:
        """Use a ticket up; false if it is not ours, too old, or used already."""
        ticket = self._seal.open(_PURPOSE, sealed, _Ticket, now)
        if ticket is None or self._used.has(ticket.id):
            return False
        self._used.add(ticket.id, until=ticket.until, now=now)
        return True
