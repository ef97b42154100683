"""A quarter of twenty mixed manifests through the real services."""

from datetime import UTC, datetime, timedelta

from headway import (
    LAST,
    App,
    Days,
    Weeks,
    cron,
    daily,
    every,
    exclude_days,
    monthly,
    monthly_dow,
    once,
    retry,
    spaced,
    weekly,
)
from headway_decisions import timing

START, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 4, 1, tzinfo=UTC)


def mixed_app() -> App:
    app = App("quarter")

    @app.job("job")
    async def job(ctx): ...

    @app.job("flaky")
    @retry(attempts=3, interval=30)
    async def flaky(ctx):
        if ctx.attempt == 1:
            raise ConnectionError("the first attempt always fails")

    whens = {
        "two-hourly": every(hours=2),
        "two-hourly-tokyo": every(hours=2, tz="Asia/Tokyo"),
        "even-hours": cron("0 */2 * * *", tz="America/New_York"),
        "office-hours": every(
            hours=1, days=Days.WEEKDAYS, between="09:00-17:00", tz="Europe/Berlin"
        ),
        "at-night": every(hours=2, between="22:00-04:00", tz="Australia/Sydney"),
        "three-hourly": cron("0 */3 * * *", tz="America/Sao_Paulo"),
        "six-hourly": every(hours=6),
        "six-hourly-kathmandu": every(hours=6, tz="Asia/Kathmandu"),
        "daily-berlin": daily("02:30", tz="Europe/Berlin"),
        "daily-new-york": daily("02:30", tz="America/New_York"),
        "daily-lord-howe": daily("02:15", tz="Australia/Lord_Howe"),
        "no-weekends": daily("07:00", exclude=[exclude_days("sat", "sun")]),
        "jittery": daily("04:00", jitter=1800),
        "every-third-day": every(days=3, at="05:00"),
        "weekly": weekly(Days.MON | Days.FRI, "06:00", tz="Asia/Tokyo"),
        "month-ends": monthly([1, LAST], "00:30", tz="America/New_York"),
        "first-monday": monthly_dow(Weeks.FIRST, Days.MON, "06:00"),
        "one-shot": once("2027-02-14 09:00", tz="Europe/Berlin"),
        "spaced": spaced(hours=12),
    }
    for name, when in whens.items():
        app.schedule(name, job=job, when=when)
    app.schedule("flaky", job=flaky, when=daily("12:00"))
    app.manifest("daily-berlin").then("after-berlin", job=job)
    return app


def expected(app: App) -> dict[str, list[datetime]]:
    """The due times by the pure rules; the oracle's tests prove those right."""
    found = {}
    for manifest in app.definitions().manifests:
        due, at = [], timing.next_allowed(manifest.timing, START - timedelta(microseconds=1))
        while at is not None and at <= END:
            due.append(at)
            at = timing.next_allowed(manifest.timing, at)
        found[manifest.external_id] = due
    return found


async def test_a_quarter_of_twenty_mixed_manifests(headway_world):
    app = mixed_app()
    world = await headway_world(app, start=START - timedelta(seconds=1))
    await world.run_until(END)
    wanted = expected(app)
    for manifest in ("spaced", "after-berlin"):
        del wanted[manifest]
    assert {name: [one.due_at for one in world.fires(name)] for name in wanted} == wanted
    assert {one.outcome for one in world.fires()} == {"completed"}
    assert len(world.fires()) > 5000
    world.assert_fired("after-berlin", times=90)
    # Half a day after each success, which takes no time at all in this world.
    world.assert_fired("spaced", times=181)
    assert {one.reason.partition(":")[0] for one in world.skips()} == {"excluded"}
    async with world.client() as headway:
        assert (await headway.ledger()).gaps == []
