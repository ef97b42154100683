"""Rate limit of failed sign-ins, by address and in total.

Tokens cannot be guessed; the limit bounds the cost of attempts for the console and the issuer.
Sessions and bearer tokens are not limited. Each process counts for itself, in bounded memory.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from headway_service_kit.settings import InvalidSettings

# A home has a whole IPv6 network of this prefix length.
_HOME_PREFIX = 64

Network = IPv4Network | IPv6Network


class TooManyAttempts(Exception):
    """Too many sign-ins failed; retry after `wait` seconds."""

    def __init__(self, wait: float) -> None:
        self.wait = max(1, math.ceil(wait))
        super().__init__(f"too many failed sign-ins: try again in {self.wait} s")


@dataclass(kw_only=True)
class Attempts:
    """The failed sign-ins of the last minutes; times are monotonic seconds."""

    per_address: int = 10
    in_all: int = 100
    within: float = 300.0
    _failed: deque[tuple[float, str]] = field(default_factory=deque, init=False)

    def begin(self, address: str, now: float) -> None:
        """Count an attempt as failed until it succeeds; raises `TooManyAttempts`."""
        while self._failed and self._failed[0][0] <= now - self.within:
            self._failed.popleft()
        here = [at for at, where in self._failed if where == address]
        ends = []
        if len(here) >= self.per_address:
            ends.append(here[-self.per_address])
        if len(self._failed) >= self.in_all:
            ends.append(self._failed[0][0])
        if ends:
            raise TooManyAttempts(max(ends) + self.within - now)
        self._failed.append((now, address))

    def succeeded(self, address: str) -> None:
        """Forget the failures of an address after a successful sign-in."""
        self._failed = deque(attempt for attempt in self._failed if attempt[1] != address)


def read_networks(stated: str) -> tuple[Network, ...]:
    """Parse the networks of trusted proxies; raises `InvalidSettings`."""
    try:
        return tuple(
            ip_network(entry.strip(), strict=False) for entry in stated.split(",") if entry.strip()
        )
    except ValueError as error:
        raise InvalidSettings(
            f"HEADWAY_TRUSTED_PROXIES: {error}: write addresses or networks, for example "
            "'10.0.0.0/8, 192.168.1.7'"
        ) from error


def address_of(peer: str, headers: Mapping[str, str], trusted: Sequence[Network]) -> str:
    """Return the address of a client: the peer, or the address that trusted proxies report.

    A proxy appends the address of its peer, so anything before the last untrusted address may be
    forged.
    """
    found = peer
    for hop in reversed(headers.get("x-forwarded-for", "").split(",")):
        known = _parse(found)
        if known is None or not any(known in network for network in trusted):
            break
        found = hop.strip() or found
    known = _parse(found)
    if known is None:
        return found[:64]
    if known.version == 4:
        return str(known)
    return str(known.ipv4_mapped or ip_network((known, _HOME_PREFIX), strict=False))


def _parse(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address)
    except ValueError:
        return None
