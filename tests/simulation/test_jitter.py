"""Jitter is spread over manifests and fire times, and yet the same in every world."""

from datetime import UTC, datetime

from headway import App, every, spaced

START, END = "2027-01-01", "2027-01-01 12:30"


def app_with(*, schedules: bool = True) -> App:
    app = App("test")
    app.job("job")(lambda ctx: None)
    if schedules:
        for name in ("one", "another"):
            app.schedule(name, job="job", when=every(hours=1), jitter=1800)
        app.schedule("after", job="job", when=spaced(hours=2), jitter=600)
    return app


def times(world) -> dict[str, list[datetime]]:
    return {name: [fire.at for fire in world.fires(name)] for name in ("one", "another", "after")}


async def test_two_worlds_fire_alike(headway_world):
    fired = []
    for _ in range(2):
        world = await headway_world(app_with(), start=START)
        await world.run_until(END)
        fired.append(times(world))
    assert fired[0] == fired[1]
    late = {
        name: {moment.minute * 60 + moment.second for moment in at} for name, at in fired[0].items()
    }
    assert len(late["one"]) > 6, "it is spread over fire times"
    assert late["one"] != late["another"], "and over manifests"


async def test_a_plan_and_a_preview_know_when_it_will_fire(headway_world):
    """A plan also of manifests that there are not yet, or not any more."""
    world = await headway_world(app_with(schedules=False), start=START)
    until = datetime(2027, 1, 1, 12, 30, tzinfo=UTC)
    async with world.client() as client:
        planned = await client.plan(app_with().definitions(), days=1)
        plan = {item.manifest: [fire.fire_at for fire in item.appear] for item in planned.fires}
        await client.apply(app_with().definitions(), take_over=True)
        preview = {
            name: [item.fire_at for item in (await client.preview(name, 24)).fires] for name in plan
        }
    assert set(plan) == {"one", "another"}, "when the other is due follows from its runs"
    assert plan == preview
    await world.run_until(END)
    fired = times(world)
    for name, at in plan.items():
        assert fired[name] == [moment for moment in at if moment <= until]
