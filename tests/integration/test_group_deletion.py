"""Deleted groups: they leave every list at once, and hold no work."""

import pytest
import pytest_asyncio
from headway import App
from headway_console.reading import connect_reader
from headway_console.reading.groups import page_of_groups
from headway_contract import subjects
from headway_contract.fields import Rate
from headway_contract.work import GroupChanged
from support.cadences import when_made_due
from support.gates import Gates, SetClock, work
from support.healing import QUICK, purge


@pytest_asyncio.fixture
async def gates(database) -> Gates:
    made = Gates(database, clock=SetClock(), max_active=100)
    await made.worker("etl")
    return made


async def limited(gates) -> list[str]:
    return [row["name"] for row in await gates.rows("SELECT name FROM dispatcher.group_limit")]


async def test_a_deletion_lets_go_what_the_group_held(gates):
    rate = Rate(count=1, period_seconds=3600)
    await gates.tell(GroupChanged(group="etl", version=1, rate=rate))
    await gates.queue(work(), work())
    assert await gates.drain() == 1
    await gates.tell(GroupChanged(group="etl", version=2, enabled=False))
    assert await gates.drain() == 0
    await gates.tell(GroupChanged(group="etl", version=3, deleted=True))
    assert await limited(gates) == []
    assert await gates.rows("SELECT FROM dispatcher.rate_use WHERE kind = 'group'") == []
    assert await gates.drain() == 1
    assert await gates.reasons() == {}


async def test_an_older_message_does_not_bring_a_deleted_group_back(gates):
    deleted = GroupChanged(group="etl", version=2, deleted=True)
    await gates.tell(deleted)
    await gates.tell(GroupChanged(group="etl", version=1, enabled=False))
    assert await limited(gates) == []
    await gates.tell(GroupChanged(group="etl", version=3, max_active=7))
    await gates.tell(deleted)
    assert await limited(gates) == ["etl"], "the same group was made again"


def app_with(*, group: str | None = None, enabled: bool | None = None) -> App:
    app = App("test")
    app.job("job")(lambda ctx: None)
    if group:
        app.schedule("m", job="job", when=when_made_due(), group=group)
        app.group(group, enabled=enabled)
    return app


async def test_a_deleted_group_vanishes_from_every_list_and_holds_no_new_work(
    world, client, database_url
):
    await world.serve(app_with())
    await world.scheduler_of_files(app_with(group="g", enabled=False), ask_after_seconds=3600)
    await world.until("SELECT NOT enabled FROM dispatcher.group_limit WHERE name = 'g'")
    await client.trigger("m")
    await world.until("SELECT reason = 'group_disabled' FROM dispatcher.waiting")
    await client.apply(app_with().definitions())
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.manifest)")
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.group_limit WHERE name = 'g')")
    assert "g" not in [group.name for group in await client.groups()]
    assert "g" not in [group.group for group in await client.occupancy()]
    reader = await connect_reader(database_url)
    try:
        async with reader.acquire() as connection:
            assert [row.name for row in (await page_of_groups(connection)).items] == []
    finally:
        await reader.close()
    await client.enqueue("job", group="g")
    await world.until_settled()


async def test_a_group_with_enqueued_work_stays(world, client):
    await world.dispatcher()
    await world.scheduler_of_files(app_with())
    await client.enqueue("job", group="g")
    await world.until("SELECT count(*) = 1 FROM dispatcher.waiting")
    await client.apply(app_with().definitions())
    assert [group.name for group in await client.groups()] == ["g"]
    await world.worker(app_with())
    await world.until_settled()
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.enqueued)")
    await client.apply(app_with().definitions())
    assert await client.groups() == []


@pytest.mark.thorough
async def test_a_deletion_that_was_lost_is_announced_again(world, client):
    await world.dispatcher()
    await world.scheduler_of_files(app_with(group="g", enabled=False), **QUICK)
    await world.until("SELECT NOT enabled FROM dispatcher.group_limit WHERE name = 'g'")
    await client.apply(app_with().definitions())
    await world.until("SELECT EXISTS (SELECT FROM scheduler.deleted_group WHERE name = 'g')")
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.group_limit WHERE name = 'g')")
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
    # Simulate a lost message.
    await purge(world, subjects.WORK_STREAM)
    await world.value("DELETE FROM dispatcher.deleted_group RETURNING name")
    await world.value(
        "INSERT INTO dispatcher.group_limit (name, version, enabled) VALUES ('g', 1, false)"
    )
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.group_limit WHERE name = 'g')")
