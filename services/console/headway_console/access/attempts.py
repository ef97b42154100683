"""Sign-ins that failed: how many of late, and from where.

Tokens cannot be guessed, so this keeps nobody out who has one for long; it bounds what somebody
who tries costs us and an issuer. Sessions and bearer tokens are not asked about. What is
remembered is bounded by the limit on all of them together, and is of this process alone.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from headway_service_kit.settings import InvalidSettings

_WITHIN_SECONDS = 300.0
_PER_ADDRESS = 10
_IN_ALL = 100
# Whoever has one address of the newer kind has all of its network.
_ONE_HOME = 64

Network = IPv4Network | IPv6Network


class TooManyAttempts(Exception):
    """Too many sign-ins have failed; `wait` says for how many seconds to leave it."""

    def __init__(self, wait: float) -> None:
        self.wait = max(1, math.ceil(wait))
        super().__init__(f"too many sign-ins have failed: try again in {self.wait} s")


class Attempts:
    """The failed sign-ins of the last minutes. Times are seconds of a clock that never steps."""

    def __init__(
        self,
        *,
        per_address: int = _PER_ADDRESS,
        in_all: int = _IN_ALL,
        within: float = _WITHIN_SECONDS,
    ) -> None:
        self._per_address = per_address
        self._in_all = in_all
        self._within = within
        self._failed: deque[tuple[float, str]] = deque()

    def begin(self, address: str, now: float) -> None:
        """Count an attempt as failed until it has succeeded; raises `TooManyAttempts`."""
        while self._failed and self._failed[0][0] <= now - self._within:
            self._failed.popleft()
        here = [at for at, where in self._failed if where == address]
        ends = []
        if len(here) >= self._per_address:
            ends.append(here[-self._per_address])
        if len(self._failed) >= self._in_all:
            ends.append(self._failed[0][0])
        if ends:
            raise TooManyAttempts(max(ends) + self._within - now)
        self._failed.append((now, address))

    def succeeded(self, address: str) -> None:
        """Forget what failed from an address: somebody there may come in."""
        self._failed = deque(one for one in self._failed if one[1] != address)


def read_networks(stated: str) -> tuple[Network, ...]:
    """Networks of proxies, as settings state them; raises `InvalidSettings` if they are none."""
    try:
        return tuple(
            ip_network(one.strip(), strict=False) for one in stated.split(",") if one.strip()
        )
    except ValueError as error:
        raise InvalidSettings(
            f"HEADWAY_TRUSTED_PROXIES: {error}: write addresses or networks, as in "
            "'10.0.0.0/8, 192.168.1.7'"
        ) from error


def address_of(peer: str, headers: Mapping[str, str], trusted: Sequence[Network]) -> str:
    """Where a request comes from: who is connected, or whom trusted proxies name.

    A proxy adds at the end whom it has heard from, so what is before the last stranger anybody
    could have written.
    """
    found = peer
    for one in reversed(headers.get("x-forwarded-for", "").split(",")):
        if not _is_among(found, trusted):
            break
        found = one.strip() or found
    return _home_of(found)


def _is_among(address: str, networks: Sequence[Network]) -> bool:
    try:
        known = ip_address(address)
    except ValueError:
        return False
    return any(known in network for network in networks)


def _home_of(address: str) -> str:
    try:
        known = ip_address(address)
    except ValueError:
        return address[:64]
    if known.version == 4:
        return str(known)
    mapped = known.ipv4_mapped
    return str(mapped or ip_network((known, _ONE_HOME), strict=False))
