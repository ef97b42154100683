"""Time you can own: the real services under a virtual clock."""

from headway import App, daily


async def test_a_quarter_of_a_daily_report(headway_world):
    app = App("test")

    @app.job("report")
    @daily("06:00", tz="Europe/Berlin", name="daily")
    async def report(ctx): ...

    world = await headway_world(app, start="2027-01-01")
    await world.run_until("2027-04-01")
    fired = world.assert_fired("report-daily", times=90, outcome="completed")
    assert fired[0].at.isoformat() == "2027-01-01T05:00:00+00:00"
    assert fired[-1].at.isoformat() == "2027-03-31T04:00:00+00:00", "summer time"
