"""A weekday filter works with any cadence: stored, previewed and planned."""

from datetime import UTC, datetime

from headway import App, daily, monthly


def app_with(**cadences) -> App:
    app = App("test")
    app.job("job")(lambda ctx: None)
    for external_id, when in cadences.items():
        app.schedule(external_id, job="job", when=when)
    return app


async def test_the_thirteenth_if_it_is_a_friday(world, client):
    beware = monthly(13, "09:00", weekdays="fri", tz="Europe/Berlin")
    await world.scheduler(app_with(beware=beware, nightly=daily("01:00")), tick="off")
    shown = await client.preview("beware", 3, after=datetime(2027, 1, 1, tzinfo=UTC))
    narrowed = app_with(beware=beware, nightly=daily("01:00", weekdays="weekdays"))
    planned = await client.plan(narrowed.definitions(), days=7)
    assert [fire.local[:16] for fire in shown.fires] == [
        "2027-08-13 09:00",
        "2028-10-13 09:00",
        "2029-04-13 09:00",
    ]
    assert (planned.moved, planned.unchanged) == (["nightly"], 1)
    [change] = planned.fires
    assert len(change.appear) == 0
    days = {datetime.fromisoformat(fire.local).strftime("%a") for fire in change.vanish}
    assert days == {"Sat", "Sun"}
