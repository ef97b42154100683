"""Twenty mixed manifests through the real services: a fortnight in CI, a quarter with `simulate`."""

import os
from datetime import UTC, datetime, timedelta

import pytest
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
from headway_decisions.timing import timing

DAYS = int(os.environ.get("HEADWAY_SIMULATE_DAYS", "14"))
# So that a fortnight has a month's end, a one-shot and a change of the clock in it.
START = datetime(2027, 3, 20, tzinfo=UTC) if DAYS < 90 else datetime(2027, 1, 1, tzinfo=UTC)
END = START + timedelta(days=DAYS)


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
        "hourly": every(hours=1),
        "hourly-tokyo": every(hours=1, tz="Asia/Tokyo"),
        "hourly-cron": cron("0 * * * *", tz="America/Sao_Paulo"),
        "three-hourly-sydney": every(hours=3, tz="Australia/Sydney", between="20:00-08:00"),
        "office-hours": every(
            hours=1, days=Days.WEEKDAYS, between="09:00-18:00", tz="Europe/Berlin"
        ),
        "two-hourly": every(hours=2),
        "six-hourly-kathmandu": cron("45 5,11,17,23 * * *", tz="Asia/Kathmandu"),
        "daily-berlin": daily("02:30", tz="Europe/Berlin"),
        "daily-new-york": daily("02:30", tz="America/New_York"),
        "daily-lord-howe": daily("02:15", tz="Australia/Lord_Howe"),
        "no-weekends": daily("06:00", exclude=[exclude_days("sat", "sun")]),
        "jittery": daily("04:00", jitter=1800),
        "every-third-day": every(days=3, at="09:00"),
        "weekly": weekly(Days.MON | Days.FRI, "06:00", tz="Asia/Tokyo"),
        "month-ends": monthly([1, LAST], "00:30", tz="America/New_York"),
        "first-monday": monthly_dow(Weeks.FIRST, Days.MON, "06:00"),
        "one-shot": once("2027-03-25 09:00", tz="Europe/Berlin"),
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


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_twenty_mixed_manifests(headway_world):
    app = mixed_app()
    world = await headway_world(app, start=START - timedelta(seconds=1))
    await world.run_until(END)
    wanted = expected(app)
    for manifest in ("spaced", "after-berlin"):
        del wanted[manifest]
    assert {name: [fire.due_at for fire in world.fires(name)] for name in wanted} == wanted
    assert {fire.outcome for fire in world.fires()} == {"completed"}
    world.assert_fired("after-berlin", times=len(wanted["daily-berlin"]))
    # Half a day after each success, which takes no time at all in this world.
    world.assert_fired("spaced", times=2 * DAYS + 1)
    assert {skip.reason.partition(":")[0] for skip in world.skips()} == {"excluded"}
    async with world.client() as headway:
        assert (await headway.ledger()).gaps == []
