"""Sign-in links for the person at this machine: each works once, for ten minutes.

`up` and `headway sign-in` make them with a key in the data folder that is new at every start, so
that an old link from a log or a shell history does not work.
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
    """Redeems tickets that were made with the key, each once, for the person of a token."""

    def __init__(self, key: str, *, token: str) -> None:
        self.token = token
        self._seal = Seal(key.encode())
        self._used = Revoked()

    def redeem(self, sealed: str, now: datetime) -> bool:
        """Use a ticket; returns false if it is invalid, expired or used."""
        ticket = self._seal.open(_PURPOSE, sealed, _Ticket, now)
        if ticket is None or self._used.has(ticket.id):
            return False
        self._used.add(ticket.id, until=ticket.until, now=now)
        return True
