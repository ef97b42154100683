"""Notifications by webhook: content, signature, retries, digests and giving up."""

import base64
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest
from headway import App, every, once, retry
from headway_contract.notifications import FiresMissed
from headway_errors import Rejected
from headway_postgres_kit import note
from headway_scheduler.declare.startup import apply
from headway_scheduler.notifications.delivery import Delivery
from headway_scheduler.notifications.recorder import Notification, write_notifications
from headway_scheduler.notifications.webhook import signed_headers, webhook_of
from headway_scheduler.settings import SchedulerSettings
from headway_service_kit.settings import InvalidSettings
from support.cadences import when_made_due
from support.receiver import SECRET, receiving, verified
from support.world import until

STATES = "SELECT state, count(*) FROM scheduler.notification GROUP BY state"
AUDIT = (
    "SELECT type, subject, data FROM scheduler.history"
    " WHERE type LIKE 'headway.notification.%' ORDER BY id"
)


@pytest.fixture
async def receiver():
    async with receiving() as made:
        yield made


@pytest.fixture
def delivery(world, receiver):
    """Return a function that makes a delivery pass, which the test runs itself."""

    def make(**settings) -> Delivery:
        given = SchedulerSettings(
            database_url=world.database_url,
            nats_url=world.nats_url,
            webhook_url=receiver.url,
            webhook_secret=SECRET,
            **settings,
        )
        webhook = webhook_of(given)
        assert webhook is not None
        return Delivery(world.database, webhook, given)

    return make


async def miss(world, number: int) -> None:
    """Record missed fires of this number of manifests in one transaction."""
    world.database.before_commit = partial(write_notifications, world.database.clock)
    at = datetime(2027, 3, 1, tzinfo=UTC)
    async with world.database.transaction():
        for index in range(number):
            note(
                Notification(
                    identity=f"missed {uuid4()} stretch-{index}",
                    subject=f"m-{index:04}",
                    data=FiresMissed(
                        manifest=f"m-{index:04}",
                        group="ops",
                        first_due_at=at,
                        last_due_at=at + timedelta(hours=1),
                    ),
                )
            )


def failing_app() -> App:
    app = App("test")

    @app.job("fails", group="ops")
    @retry(attempts=1)
    async def fails(ctx):
        raise ValueError("no")

    app.schedule("nightly", job=fails, when=when_made_due())
    return app


async def test_a_dead_letter_and_a_blocked_manifest_are_notified_once(world, client, receiver):
    app = failing_app()
    await world.serve(app)
    hook = {"webhook_url": receiver.url, "webhook_secret": SECRET}
    scheduler = await world.scheduler(app, **hook)
    await client.trigger("nightly")
    enqueued = await client.enqueue("fails")
    await world.until("SELECT count(*) = 3 FROM scheduler.notification")
    scheduler.wake("notify")
    await world.until(
        "SELECT count(*) = 3 FROM scheduler.notification WHERE state = 'delivered'", within=15
    )
    assert len(receiver.requests) == 3
    for line, headers, body in receiver.requests:
        assert line == "POST /hook HTTP/1.1"
        assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert verified(headers, body)
        assert not verified(headers, body + b" ")
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 3

    [blocked] = receiver.of("blocked")
    letters = {
        notification["data"]["work"]: notification for notification in receiver.of("dead_lettered")
    }
    of_enqueued = letters.pop(str(enqueued.work))
    [of_manifest] = letters.values()
    assert blocked["subject"] == "nightly"
    assert blocked["data"]["dead_letter"] == of_manifest["data"]["dead_letter"]
    assert (of_manifest["specversion"], of_manifest["source"]) == ("1.0", "headway/scheduler")
    assert of_manifest["data"]["manifest"] == "nightly"
    assert {notification["data"]["job"] for notification in (of_manifest, of_enqueued)} == {"fails"}
    assert of_enqueued["data"]["manifest"] is None

    audit = await world.rows(AUDIT)
    assert [row["type"] for row in audit] == ["headway.notification.delivered.v1"] * 3


async def test_a_stretch_of_missed_fires_is_one_notification(world, receiver):
    app = App("test")

    @app.job("often")
    async def often(ctx): ...

    app.schedule("each-minute", job=often, when=every(minutes=1))
    await world.declare(app)
    await world.value(
        "UPDATE scheduler.manifest SET wake_at = clock_timestamp(),"
        " next_due_at = date_trunc('minute', clock_timestamp()) - interval '2 hours'"
    )
    scheduler = await world.scheduler(app, webhook_url=receiver.url, webhook_secret=SECRET)
    await world.until("SELECT count(*) = 1 FROM scheduler.notification")
    scheduler.wake("notify")

    async def arrived():
        return bool(receiver.of("missed"))

    await until(arrived, within=15, what="the notification")
    [missed] = receiver.of("missed")
    first, last = (
        datetime.fromisoformat(missed["data"][name]) for name in ("first_due_at", "last_due_at")
    )
    assert last - first >= timedelta(minutes=118)
    assert missed["subject"] == missed["data"]["manifest"] == "each-minute"


async def test_fires_that_a_request_finds_missed_are_notified(world, client, receiver):
    def declared(minutes: int):
        app = App("test")
        app.job("often", group="ops")(lambda ctx: None)
        app.schedule("often", job="often", when=every(minutes=minutes))
        return app

    scheduler = await world.scheduler_of_files(
        declared(1), webhook_url=receiver.url, webhook_secret=SECRET
    )
    await scheduler.end_pass("tick")
    await world.value(
        "UPDATE scheduler.manifest SET"
        " next_due_at = date_trunc('minute', clock_timestamp()) - interval '2 hours'"
    )
    await client.apply(declared(2).definitions())
    assert await world.value("SELECT count(*) FROM scheduler.notification") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("reason", ["retimed without a tick", "undeclared", "declared too late"])
async def test_fires_that_a_declaration_finds_missed_are_notified(world, reason):
    world.database.before_commit = partial(write_notifications, world.database.clock)
    app = App("test")
    app.job("often", group="ops")(lambda ctx: None)
    await world.declare(app)
    if reason == "declared too late":
        app.schedule("a", job="often", when=once("2026-01-01 09:00"))
        await world.declare(app)
    else:
        app.schedule("a", job="often", when=every(minutes=1))
        await world.declare(app)
        await world.value(
            "UPDATE scheduler.manifest SET"
            " next_due_at = date_trunc('minute', clock_timestamp()) - interval '2 hours'"
        )
        later = App("test")
        later.job("often", group="ops")(lambda ctx: None)
        if reason == "retimed without a tick":
            later.schedule("a", job="often", when=every(minutes=2))
        await apply(world.database, later.definitions(), policy="disable", may_fire=False)
    [found] = await world.rows("SELECT type, subject, data FROM scheduler.notification")
    assert (found["type"], found["subject"]) == ("headway.notification.missed.v1", "a")
    assert (found["data"]["manifest"], found["data"]["group"]) == ("a", "ops")


@pytest.mark.thorough
async def test_without_a_webhook_nothing_is_written(world, client):
    app = failing_app()
    await world.run(app)
    await world.until("SELECT count(*) = 1 FROM scheduler.manifest WHERE blocked_by IS NOT NULL")
    assert await world.value("SELECT count(*) FROM scheduler.notification") == 0
    with pytest.raises(Rejected, match="set HEADWAY_WEBHOOK_URL"):
        await client.test_notification()


async def test_rolled_back_facts_are_not_notified(world):
    world.database.before_commit = partial(write_notifications, world.database.clock)
    at = datetime(2027, 3, 1, tzinfo=UTC)
    with pytest.raises(ZeroDivisionError):
        async with world.database.transaction():
            note(
                Notification(
                    identity="missed c",
                    subject="m",
                    data=FiresMissed(manifest="m", group="g", first_due_at=at, last_due_at=at),
                )
            )
            raise ZeroDivisionError
    assert await world.value("SELECT count(*) FROM scheduler.notification") == 0


async def test_a_refused_notification_is_sent_again_under_the_same_id(world, receiver, delivery):
    sender = delivery(webhook_timeout_seconds=0.3, webhook_retry_seconds=0.01)
    await miss(world, 1)
    receiver.statuses = [500, 302, None]

    async def delivered():
        await sender.run_once()
        return await world.value("SELECT state = 'delivered' FROM scheduler.notification")

    await until(delivered, within=20, what="the notification is delivered")
    assert [line for line, _, _ in receiver.requests] == ["POST /hook HTTP/1.1"] * 4
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 1
    assert len({body for _, _, body in receiver.requests}) == 1
    [outcome] = await world.rows(AUDIT)
    assert (outcome["subject"], outcome["data"]["attempts"]) == ("m-0000", 4)


async def test_after_its_horizon_it_is_given_up_and_that_is_in_the_audit(world, receiver, delivery):
    sender = delivery(webhook_retry_seconds=0.2, webhook_horizon_hours=0.5 / 3600)
    await miss(world, 1)
    receiver.statuses = [503] * 50

    async def given_up():
        await sender.run_once()
        return await world.value("SELECT state = 'given_up' FROM scheduler.notification")

    await until(given_up, within=20, what="the notification is given up")
    attempts = len(receiver.requests)
    await sender.run_once()
    assert len(receiver.requests) == attempts >= 1
    [outcome] = await world.rows(AUDIT)
    assert outcome["type"] == "headway.notification.given_up.v1"
    assert outcome["data"]["error"] == "status 503"


async def test_two_senders_send_each_once(world, receiver, delivery):
    await miss(world, 12)
    senders = [delivery(), delivery()]

    async def all_sent():
        for sender in senders:
            await sender.run_once()
        return await world.value("SELECT bool_and(state = 'delivered') FROM scheduler.notification")

    await until(all_sent, within=20, what="all are sent")
    subjects = sorted(notification["subject"] for notification in receiver.of("missed"))
    assert subjects == [f"m-{index:04}" for index in range(12)]


async def test_a_flood_is_sent_as_a_digest(world, receiver, delivery):
    await miss(world, 1500)
    sender = delivery(webhook_burst=20)
    for _ in range(5):
        await sender.run_once()
    digests = receiver.of("digest")
    assert sorted(notification["data"]["count"] for notification in digests) == [500, 1000]
    assert len(receiver.requests) == 2
    first = digests[0]
    assert first["subject"] == first["data"]["of"] == "headway.notification.missed.v1"
    assert len(first["data"]["subjects"]) == 100
    states = {row["state"]: row["count"] for row in await world.rows(STATES)}
    assert states == {"folded": 1500, "delivered": 2}


async def test_an_operator_tests_the_webhook(world, client, receiver):
    await world.scheduler(webhook_url=receiver.url, webhook_secret=SECRET)
    answer = await client.test_notification()
    assert answer.text == "the webhook accepted the test notification"
    receiver.statuses = [401]
    with pytest.raises(Rejected, match="did not accept the test notification: status 401"):
        await client.test_notification()
    assert [notification["data"] for notification in receiver.of("test")] == [{"actor": "ada"}] * 2
    kinds = [row["type"] for row in await world.rows(AUDIT)]
    assert kinds == ["headway.notification.tested.v1", "headway.notification.test_failed.v1"]


@pytest.mark.parametrize(
    "secret", [None, "hush", "whsec_", "whsec_" + base64.b64encode(b"short").decode(), "whsec_!"]
)
def test_a_webhook_with_a_bad_secret_is_refused_without_showing_the_secret(secret):
    given = SchedulerSettings(
        database_url="", nats_url="", webhook_url="https://h.example", webhook_secret=secret
    )
    with pytest.raises(InvalidSettings, match="headway notify secret") as caught:
        webhook_of(given)
    assert secret in (None, "whsec_") or secret not in str(caught.value)


def test_while_a_secret_is_replaced_both_sign():
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    given = SchedulerSettings(
        database_url="",
        nats_url="",
        webhook_url="https://h.example",
        webhook_secret=f"{SECRET} {other}",
    )
    webhook = webhook_of(given)
    assert webhook is not None
    headers = signed_headers(webhook.secrets, "id", 1, b"{}")
    assert verified(headers, b"{}", SECRET)
    assert verified(headers, b"{}", other)
