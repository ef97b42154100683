"""Traps of nats-py: what the client does by itself, and what ours does instead.

Each test shows the trap with the plain client first. Should one of those lines fail after an
update of nats-py, the trap is gone, and so may be the piece of `SturdyClient` that closes it.
"""

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.client import SturdyClient
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import BadHeaderError, BadSubjectError, FlushTimeoutError, OutboundBufferLimitError
from nats.errors import Error as NatsError
from support.proxy import Proxy
from support.raw_nats import connect_line, publish_raw
from support.world import until

pytestmark = pytest.mark.thorough

NOBODY = "nats://127.0.0.1:9"


async def connect(url: str, **options: float) -> SturdyClient:
    client = SturdyClient()
    await client.connect(url, **options)
    return client


@pytest.fixture
async def plain(nats_url: str) -> AsyncIterator[Client]:
    client = await nats.connect(nats_url, allow_reconnect=False)
    yield client
    await client.close()


@pytest.fixture
async def sturdy(nats_url: str) -> AsyncIterator[SturdyClient]:
    client = await connect(nats_url)
    yield client
    await client.close()


async def reader_ends(client: Client) -> None:
    async def ended() -> bool:
        return client._reading_task.done()

    await until(ended, within=5, what="the reader has ended")


class TestSubjectsThatAreNoText:
    SUBJECT = b"trap.\xff\xfe"

    async def test_one_kills_the_plain_reader_and_nobody_notices(self, plain, nats_url):
        await plain.subscribe("trap.*")
        await plain.flush()
        await publish_raw(nats_url, self.SUBJECT, b"hi")
        await reader_ends(plain)
        assert plain.is_connected, "it looks alive"
        await plain.flush(timeout=1)  # and says that all is well

    async def test_ours_reads_on(self, sturdy, nats_url):
        subscription = await sturdy.subscribe("trap.*")
        await sturdy.flush()
        await publish_raw(nats_url, self.SUBJECT, b"hi")
        await publish_raw(nats_url, b"trap.fine", b"there")
        heard = [await subscription.next_msg(timeout=5) for _ in range(2)]
        assert [(message.subject, message.data) for message in heard] == [
            ("trap.\ufffd\ufffd", b"hi"),
            ("trap.fine", b"there"),
        ]


class TestAnswersThatComeLate:
    """A ping whose asker has given up is answered all the same."""

    async def ask_and_give_up(self, client: Client, proxy: Proxy) -> None:
        proxy.stall("to_client")
        with pytest.raises(FlushTimeoutError):
            await client.flush(timeout=0.2)
        proxy.flow()

    async def test_one_kills_the_plain_reader(self, nats_url):
        proxy = await Proxy(nats_url).start()
        client = await nats.connect(proxy.url)
        await self.ask_and_give_up(client, proxy)
        await reader_ends(client)
        assert client.is_connected
        await client.close()
        await proxy.stop()

    async def test_ours_reads_on(self, nats_url):
        proxy = await Proxy(nats_url).start()
        client = await connect(proxy.url)
        await self.ask_and_give_up(client, proxy)
        await client.flush(timeout=5)
        assert client.reads
        await client.close()
        await proxy.stop()


class TestHeadersThatAreNoHeaders:
    @pytest.mark.parametrize(
        "headers",
        [
            b"Status: 404\r\n",
            b"Status: 500\r\nDescription: no\r\n",
            b"no colon\r\n",
            b": no name\r\n",
            b"\xff: \xfe\r\n",
            b"name: \xff\xfe\r\n",
        ],
    )
    async def test_ours_reads_on(self, sturdy, nats_url, headers):
        subscription = await sturdy.subscribe("trap.*")
        await sturdy.flush()
        await publish_raw(nats_url, b"trap.a", b"hi", headers)
        assert (await subscription.next_msg(timeout=5)).data == b"hi"
        assert sturdy.reads

    @pytest.mark.parametrize(
        "lines",
        [
            b"",
            b"a: b\r\nNats-Msg-Id:c\r\n\r\n",
            b" a :\t b \r\nA: \r\na: again: and again\r\n",
            b"two words: c\r\nno colon\r\n\xff: d\r\ne: \xff\r\nf: \xc3\xa4\r\n",
        ],
    )
    def test_ours_finds_what_the_plain_one_finds(self, lines):
        assert SturdyClient._parse_header_lines(lines) == Client._parse_header_lines(lines)

    async def test_a_status_line_of_a_publisher_stops_nobody(self, sturdy, nats_url):
        """A publisher writes a status line that only the server should send."""
        subscription = await sturdy.subscribe("trap.*")
        await sturdy.flush()
        for line in (b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0 404 \xff\r\n\r\n", b"NATS/1.0"):
            reader, writer = await asyncio.open_connection(*_address(nats_url))
            await reader.readline()
            writer.write(connect_line(nats_url))
            writer.write(b"HPUB trap.a %d %d\r\n" % (len(line), len(line)) + line + b"\r\nPING\r\n")
            async with asyncio.timeout(5):
                await reader.readline()
            writer.close()
        await publish_raw(nats_url, b"trap.last")
        while (await subscription.next_msg(timeout=5)).subject != "trap.last":
            pass
        assert sturdy.reads


class TestNamesWithLineBreaks:
    """Text in a subject or a header must not become a command of its own."""

    @pytest.mark.parametrize("subject", ["a 0\r\n\r\nPUB b", "a b", "a\tb", "a\nb", ""])
    async def test_a_subject_is_refused(self, sturdy, subject):
        with pytest.raises(BadSubjectError):
            await sturdy.publish(subject, b"")
        with pytest.raises(BadSubjectError):
            await sturdy.request(subject, b"", timeout=1)

    async def test_a_header_stays_one_header(self, sturdy):
        with pytest.raises(BadHeaderError):
            await sturdy.publish("trap.a", b"", headers={"a\r\nNats-Rollup": "all"})
        subscription = await sturdy.subscribe("trap.*")
        await sturdy.publish("trap.a", b"", headers={"a": "b\r\nNats-Rollup: all"})
        headers = (await subscription.next_msg(timeout=5)).headers
        assert headers is not None
        assert list(headers) == ["a"]


class TestAConnectionThatDoesNotTakeData:
    """The other side stops reading while there is still something to send."""

    async def fill(self, client: Client, proxy: Proxy) -> None:
        proxy.stall("to_server")
        for _ in range(40):
            await client.publish("trap.a", b"x" * 900_000)
        await asyncio.sleep(0)

    async def test_the_plain_client_waits_for_it_to_be_sent(self, nats_url):
        proxy = await Proxy(nats_url).start()
        client = await nats.connect(proxy.url, reconnect_time_wait=0.1, pending_size=0)
        await self.fill(client, proxy)
        await client.force_reconnect()
        await asyncio.sleep(1)
        assert client.is_reconnecting, (
            "and it would until the kernel gives up, a quarter of an hour"
        )
        assert proxy.accepted == 1, "without a single try"
        proxy.flow()

        async def connected() -> bool:
            return client.is_connected

        await until(connected, within=5, what="connected once the data is taken")
        await client.close()
        await proxy.stop()

    async def test_ours_does_not(self, nats_url):
        proxy = await Proxy(nats_url).start()
        client = await connect(proxy.url, reconnect_time_wait=0.1, pending_size=0)
        await self.fill(client, proxy)
        await client.reconnect()

        async def connected() -> bool:
            return client.is_connected and proxy.accepted == 2

        await until(connected, within=5, what="connected anew")
        await client.flush(timeout=5)
        await client.close()
        await proxy.stop()

    async def test_closing_ours_takes_no_longer_than_its_deadline(self, nats_url):
        proxy = await Proxy(nats_url).start()
        broker = await Broker.connect(proxy.url, name="test")
        await self.fill(broker.client, proxy)
        async with asyncio.timeout(5):
            await broker.close()
        await proxy.stop()


async def test_while_disconnected_nothing_is_kept_for_later(nats_url):
    """A publish that was given up must not be stored after all, at some later time."""
    proxy = await Proxy(nats_url).start()
    broker = await Broker.connect(proxy.url, name="test")
    proxy.stall(new_ones_too=True)
    await broker.client.reconnect()
    with pytest.raises(OutboundBufferLimitError):
        await broker.client.publish("trap.a", b"")
    with pytest.raises(BrokerUnavailable):
        await broker.ping()
    await broker.close()
    await proxy.stop()


async def test_the_error_names_the_servers_that_were_tried():
    with pytest.raises(BrokerUnavailable, match=f"{NOBODY},{NOBODY}"):
        await Broker.connect(f"{NOBODY},{NOBODY}", name="test", timeout=1)


async def test_a_refused_login_is_reported_although_a_later_attempt_was_reset():
    """A refusing server closes the connection, and a client that still writes reads only a reset."""
    attempts = 0

    async def refuse(reader, writer):
        nonlocal attempts
        attempts += 1
        writer.write(b'INFO {"auth_required": true, "max_payload": 1048576}\r\n')
        await writer.drain()
        if attempts == 1:
            await reader.readline()
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            writer.close()
        else:
            writer.transport.abort()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(BrokerUnavailable, match="Authorization Violation"):
        await Broker.connect(f"nats://127.0.0.1:{port}", name="test", timeout=2)
    assert attempts > 1
    server.close()


async def test_one_of_several_servers_is_enough(nats_url):
    broker = await Broker.connect(f"{NOBODY},{nats_url}", name="test")
    await broker.ping()
    await broker.close()


async def test_reconnect_brings_subscriptions_along(sturdy, nats_url):
    subscription = await sturdy.subscribe("trap.*")
    await sturdy.flush()
    for _ in range(3):
        await sturdy.reconnect()

    async def connected() -> bool:
        return sturdy.is_connected

    await until(connected, within=5, what="connected anew")
    await sturdy.flush()
    await publish_raw(nats_url, b"trap.a", b"hi")
    assert (await subscription.next_msg(timeout=5)).data == b"hi"


async def test_a_closed_client_does_not_reconnect(nats_url):
    client = await connect(nats_url)
    await client.close()
    await client.reconnect()
    assert client.is_closed
    with pytest.raises(NatsError):
        await client.publish("trap.a", b"")


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("@")[2].partition(":")
    return host, int(port)


async def test_nothing_piles_up_in_the_client(sturdy):
    """Questions that were answered, were not, or were given up leave nothing behind."""

    async def answer(message: Msg) -> None:
        await message.respond(b"yes")

    await sturdy.subscribe("trap.answered", cb=answer)
    await sturdy.subscribe("trap.silent")
    await sturdy.request("trap.answered", b"", timeout=5)
    tasks = len(asyncio.all_tasks())
    for _ in range(200):
        await sturdy.request("trap.answered", b"", timeout=5)
        with pytest.raises(TimeoutError):
            await sturdy.request("trap.silent", b"", timeout=0.001)
        with pytest.raises(NatsError):
            await sturdy.request("trap.nobody", b"", timeout=5)
        await sturdy.send_ping()
    await sturdy.flush()
    assert sturdy._resp_map == {}
    assert sturdy._pongs == []
    assert len(asyncio.all_tasks()) <= tasks + 2
