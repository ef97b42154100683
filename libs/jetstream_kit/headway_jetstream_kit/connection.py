"""A connection to NATS that reconnects by itself, and JetStream's API over it.

A watchdog detects a connection that looks alive but is dead: it pings the server every few seconds.
If several answers are missing, it drops the connection and reconnects; if new connections do not
answer either, it gives up and the process exits, so that its supervisor starts another. While no
server is reachable, the client itself tries to reconnect and the watchdog does not give up.
"""

import asyncio
from typing import Any

import msgspec
from headway_tracing.log import get_logger
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from headway_jetstream_kit.client import SturdyClient

log = get_logger(__name__)

PING_SECONDS = 3.0
# Missing answers. By default a dead connection is replaced within 12 s and given up after 30 s.
RECONNECT_AFTER = 3
GIVE_UP_AFTER = 9

_CONNECT_SECONDS = 3.0
_OPTIONS: dict[str, Any] = {
    "allow_reconnect": True,
    "max_reconnect_attempts": -1,
    "reconnect_time_wait": 0.5,
    "connect_timeout": 2,
    "ping_interval": 10,
    "max_outstanding_pings": 2,
    # Buffer nothing while disconnected: a publish that timed out could still be stored later.
    "pending_size": 0,
}


class BrokerUnavailable(Exception):
    """NATS cannot be reached, or JetStream does not answer."""


class ApiError(Exception):
    """JetStream refused an API request."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} (code {code}, {err_code})")
        self.code = code
        self.err_code = err_code


class Broker:
    """A connection to NATS, made by `connect`."""

    def __init__(
        self, client: SturdyClient, where: str, closed: asyncio.Event, ping_seconds: float
    ) -> None:
        self.client = client
        self.where = where
        # Set when the connection is lost for good: the watchdog gave it up, or certain errors of
        # the server made the client close it.
        self.closed = closed
        self._watching = asyncio.create_task(self._watch(ping_seconds))

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        credentials: str | None = None,
        inbox_prefix: str | None = None,
        timeout: float = 5,
        ping_seconds: float = PING_SECONDS,
    ) -> "Broker":
        """Connect, or raise with the address and the reason.

        Each server is tried repeatedly until the timeout. Once connected, the client tries to
        reconnect for ever while no server is reachable.
        """
        client, where, closed = SturdyClient(), _without_secrets(url), asyncio.Event()
        early: list[Exception] = []
        connected = False

        async def on_error(error: Exception) -> None:
            # Before the first connection, the errors say why there is none.
            if connected:
                log.warning("NATS error", error=reason(error))
            else:
                early.append(error)

        async def log_disconnected() -> None:
            if not client.is_closed:
                log.warning("disconnected from NATS; reconnecting", address=where)

        async def log_reconnected() -> None:
            log.info("reconnected to NATS")

        async def on_closed() -> None:
            closed.set()

        try:
            async with asyncio.timeout(timeout):
                await client.connect(
                    [server.strip() for server in url.split(",")],
                    name=name,
                    user_credentials=credentials,
                    inbox_prefix=inbox_prefix or "_INBOX",
                    closed_cb=on_closed,
                    error_cb=on_error,
                    disconnected_cb=log_disconnected,
                    reconnected_cb=log_reconnected,
                    **_OPTIONS,
                )
        except (OSError, TimeoutError, NatsError) as error:
            # A server that refuses a login closes the connection, and a client that still writes
            # may see only the reset. So the refusal of any attempt explains more.
            refusals = [error for error in early if isinstance(error, NatsError)]
            why = (refusals or early or [error])[-1]
            raise BrokerUnavailable(f"{where}: {reason(why)}") from error
        connected = True
        return cls(client, where, closed, ping_seconds)

    @property
    def reconnects(self) -> int:
        """The number of reconnects."""
        return int(self.client.stats["reconnects"])

    async def _watch(self, ping_seconds: float) -> None:
        """Watch the connection until it is closed or given up."""
        # Count answers, not seconds: after a suspension of this process, the answers have arrived.
        client, missing = self.client, 0
        while not client.is_closed:
            signs = client.answers + client.failed_connects
            try:
                async with asyncio.timeout(ping_seconds / 3):
                    await client.send_ping()
            except Exception as error:  # noqa: BLE001 - the watchdog must survive every fault
                log.debug("NATS ping failed", error=repr(error))
            # A connect may take longer than the interval.
            await asyncio.sleep(max(ping_seconds, 0 if client.is_connected else _CONNECT_SECONDS))
            missing = missing + 1 if client.answers + client.failed_connects == signs else 0
            if missing >= GIVE_UP_AFTER:
                log.error("NATS does not answer on new connections; giving up", address=self.where)
                self.closed.set()
                return
            if missing and missing % RECONNECT_AFTER == 0:
                log.warning("NATS does not answer; reconnecting", missing_answers=missing)
                await client.reconnect()

    async def ping(self) -> None:
        """Raise unless the server answers."""
        # A flush would succeed in these cases.
        if not self.client.is_connected:
            raise BrokerUnavailable(f"{self.where}: not connected")
        if not self.client.reads:
            raise BrokerUnavailable(f"{self.where}: the reader of the connection has ended")
        try:
            await self.client.flush(timeout=2)
        except (OSError, TimeoutError, NatsError) as error:
            raise BrokerUnavailable(f"{self.where}: {reason(error)}") from error

    async def api(self, verb: str, request: Any = None, *, timeout: float = 5) -> dict[str, Any]:
        """Send a request to JetStream's API; raise `ApiError` with the server's code."""
        body = b"" if request is None else msgspec.json.encode(request)
        try:
            reply = await self.client.request(f"$JS.API.{verb}", body, timeout=timeout)
        except NoRespondersError as error:
            raise BrokerUnavailable(f"{self.where}: JetStream is not enabled") from error
        except (OSError, TimeoutError, NatsError) as error:
            raise BrokerUnavailable(f"{self.where}: {reason(error)}") from error
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
        fault = answer.get("error")
        if fault:
            raise ApiError(
                fault.get("code", 0), fault.get("err_code", 0), fault.get("description", "")
            )
        return answer

    async def close(self) -> None:
        """Close within a few seconds in any state."""
        self._watching.cancel()
        try:
            async with asyncio.timeout(3):
                await self.client.close()
        except (OSError, TimeoutError, NatsError) as error:
            log.warning("closing the NATS connection failed", error=reason(error))
            self.client.cut_off()


def reason(error: BaseException) -> str:
    """Return the text of an error, or its type if it has none."""
    return str(error) or type(error).__name__


def _without_secrets(urls: str) -> str:
    parts = [url.strip().rpartition("://") for url in urls.split(",")]
    return ",".join(f"{scheme}{mark}{rest.rpartition('@')[2]}" for scheme, mark, rest in parts)
