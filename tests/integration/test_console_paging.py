"""Lists of the console: filters that are combined, and pages that follow each other."""

import pytest
from headway import App
from headway_console.reading.audit import AuditFilter, page_of_audit
from headway_console.reading.events import (
    EventFilter,
    page_of_events,
)
from headway_console.reading.manifests import (
    ManifestFilter,
    page_of_manifests,
)
from headway_console.reading.works import WorkFilter, page_of_works
from headway_errors import Invalid
from support.cadences import when_made_due

HOURLY = when_made_due()


async def test_filters_of_events_can_be_combined(world, reader):
    app = App("test")
    app.job("job", group="ops")(_nothing)
    app.job("other", group="ops")(_nothing)
    for name, job in (("a", "job"), ("b", "job"), ("c", "other")):
        app.schedule(name, job=job, when=HOURLY, input={})
    await world.run(app)
    await world.until_settled(at_least=3)
    everything = (await page_of_events(reader, EventFilter())).items
    manifests = {
        row["id"]: row["manifest"]
        for row in await world.rows("SELECT id, manifest FROM dispatcher.work_queue")
    }
    of_a = [event for event in everything if manifests.get(event.work) == "a"]
    run = next(event.run for event in of_a if event.run)
    for filters, expected in (
        (EventFilter(manifest="a"), of_a),
        (EventFilter(manifest="a", group="ops", job="job", accepted=True), of_a),
        (EventFilter(manifest="a", job="other"), []),
        (EventFilter(manifest="nobody"), []),
        (
            EventFilter(manifest="a", type=("run.*",)),
            [event for event in of_a if event.type.startswith("headway.run.")],
        ),
        (EventFilter(run=run), [event for event in of_a if event.run == run]),
        (EventFilter(run=run, manifest="b"), []),
    ):
        assert (await page_of_events(reader, filters)).items == expected, filters
        first = await page_of_events(reader, filters, limit=2)
        rest = await page_of_events(reader, filters, cursor=first.next) if first.next else None
        assert first.items + (rest.items if rest else []) == expected, filters


async def test_pages_follow_each_other_without_gap_or_repeat(world, reader):
    app = App("test")
    app.job("job")(_nothing)
    app.schedule_many("m", job="job", items=[(str(n), {"n": n}) for n in range(7)], when=HOURLY)
    await world.dispatcher()
    await world.fire(app)
    await world.until("SELECT count(*) = 7 FROM dispatcher.work_queue")
    lists = {
        "work": lambda cursor: page_of_works(reader, WorkFilter(), cursor=cursor, limit=3),
        "manifests": lambda cursor: page_of_manifests(
            reader, ManifestFilter(), cursor=cursor, limit=3
        ),
        "events": lambda cursor: page_of_events(reader, EventFilter(), cursor=cursor, limit=3),
        "audit": lambda cursor: page_of_audit(reader, AuditFilter(), cursor=cursor, limit=3),
    }
    for name, page_at in lists.items():
        seen, cursor = [], None
        while True:
            page = await page_at(cursor)
            seen += [str(item) for item in page.items]
            if page.next is None:
                break
            cursor = page.next
        assert len(seen) == len(set(seen)) >= 7, name
    for wrong in ("nonsense", "ä", "W10"):
        with pytest.raises(Invalid, match=r"invalid cursor|names no entry"):
            await page_of_works(reader, WorkFilter(), cursor=wrong)
    first = await page_of_manifests(reader, ManifestFilter(), limit=3)
    with pytest.raises(Invalid, match="another list"):
        await page_of_works(reader, WorkFilter(), cursor=first.next)


async def _nothing(ctx, given: dict): ...
