"""Explanations for on-call operators: why a manifest ran or did not."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from headway import App, daily, every, exclude_times, manual

HOUR = timedelta(hours=1)


def app_with(when, **terms) -> App:
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("m", job="job", when=when, **terms)
    return app


async def declare(world, when=None, **terms) -> datetime:
    """Declare an hourly manifest that is a day old; return its last due time."""
    app = app_with(when or every(hours=1), **terms)
    await world.declare(app)
    await world.value("UPDATE scheduler.timing SET since = since - interval '1 day'")
    await world.value("UPDATE scheduler.history SET occurred_at = occurred_at - interval '1 day'")
    await world.scheduler(tick="off")
    return (await world.value("SELECT date_trunc('hour', clock_timestamp())")).astimezone(UTC)


async def decide(world, first, last=None, *, decision="skipped", reason=None, outcome=None, **more):
    last = last or first
    cause = more.pop("cause", None) or (
        f"due:{first.isoformat()}" if first == last else f"stretch:{first.isoformat()}/x"
    )
    await world.value(
        "INSERT INTO scheduler.occurrence (manifest_id, cause, first_due_at, last_due_at, decision,"
        " reason, work_id, outcome, decided_at, actor, policies)"
        " SELECT id, $1, $2, $3, $4, $5, $6, $7, $3, $8, scheduler.policies(manifest)"
        " FROM scheduler.manifest"
        " WHERE external_id = 'm'",
        cause,
        first,
        last,
        decision,
        reason,
        uuid4() if decision == "queued" else None,
        outcome,
        more.get("actor"),
    )


async def explain(world, at=None) -> str:
    async with world.client() as client:
        text = (await client.explain("m", at=at)).text
    print(text)
    return text


async def test_a_fired_time_names_its_work_and_outcome(world, client):
    last = await declare(world)
    await decide(world, last - HOUR, decision="queued", outcome="dead_lettered")
    answer = await client.explain("m", at=last - HOUR)
    [entry] = answer.entries
    assert "fired: work" in answer.text
    assert str(entry.work) in answer.text
    assert "failed for good and became a dead letter" in answer.text


REASONS = {
    "missed": "no scheduler decided it in time",
    "excluded: dates 2026-12-25": "its timing leaves that out (dates 2026-12-25)",
    "still_outstanding": "earlier work of it was still under way",
    "one_already_waits": "one more was waiting already",
    "manifest_disabled": "it was disabled. It is enabled again.",
    "group_disabled": "its group 'ops' was disabled. It is enabled again.",
    "blocked_by_dead_letter": "a dead letter blocked it",
    "collapsed_into_a_later_success": "one run stands for all of them",
    "invalid_input: at x: 1 is not a string": "at x: 1 is not a string",
    "invalid_key: it is empty": "its input makes no concurrency key (it is empty)",
    "something_new": "the reason on record is 'something_new'",
}


@pytest.mark.thorough
async def test_every_reason_is_a_sentence(world):
    last = await declare(world)
    for reason, words in REASONS.items():
        await decide(world, last - 3 * HOUR, last - HOUR, reason=reason)
        text = await explain(world, last - 2 * HOUR)
        assert text.startswith("Everything from ")
        assert words in text
        assert text.endswith((".", "?"))
        await world.value("DELETE FROM scheduler.occurrence")


async def test_the_actor_who_disabled_it_is_named(world):
    last = await declare(world)
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1", last - HOUR)
    async with world.client("alice") as client:
        await client.disable("m")
    text = await explain(world)
    assert "It is held: it is disabled (by alice at " in text
    assert "'headway enable m'" in text
    assert "It would fire next at " in text
    await world.value("UPDATE scheduler.history SET occurred_at = occurred_at - interval '1 day'")
    await world.value("DELETE FROM scheduler.occurrence")
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1", last - HOUR)
    text = await explain(world, last)
    assert "was a due time and has not fired" in text
    assert "by alice" in text


async def test_times_without_a_decision(world):
    last = await declare(world)
    assert "there was no manifest 'm' yet" in await explain(world, last - 48 * HOUR)
    assert "kept for 30 days" in await explain(world, last - timedelta(days=90))
    # A time that is not due names the nearest due times.
    await decide(world, last - HOUR, reason="still_outstanding")
    text = await explain(world, last - HOUR + timedelta(minutes=10))
    assert "is no due time of m (every hour (UTC)). The nearest are " in text
    assert "earlier work of it was still under way" in text


async def test_the_timing_in_force_at_that_time_counts(world):
    last = await declare(world)
    await world.value(
        "INSERT INTO scheduler.timing SELECT manifest_id, $1,"
        ' \'{"cadence": {"type": "daily", "time": "03:15"}}\' FROM scheduler.timing',
        last - 20 * HOUR,
    )
    text = await explain(world, last - HOUR)
    assert "is no due time of m (daily at 03:15 (UTC))" in text
    text = await explain(world, last - 21 * HOUR)
    assert "no decision about it is in the ledger" in text


async def test_a_future_time_and_a_past_one_without_a_tick(world, client):
    last = await declare(world)
    assert "lies ahead and will fire." in await explain(world, last + 5 * HOUR)
    await client.change("m", jitter=1800.0)
    assert "its jitter lets it go at" in await explain(world, last + 5 * HOUR)
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1", last - HOUR)
    assert "no scheduler ticks" in await explain(world, last - HOUR)


async def test_an_excluded_future_time(world):
    when = daily("12:00", exclude=exclude_times("11:00-13:00"), tz="Europe/Berlin")
    app = app_with(every(hours=1, exclude=exclude_times("11:00-13:00")))
    await world.scheduler(app, tick="off")
    assert when.problems == ()
    noon = datetime(2099, 1, 1, 12, tzinfo=UTC)
    assert "will not fire: its timing leaves that out" in await explain(world, noon)


async def test_outstanding_work_holds_the_next(world):
    last = await declare(world)
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1", last)
    async with world.client("bob") as client:
        assert (await client.trigger("m")).result == "queued"
    text = await explain(world)
    assert "a trigger by bob fired: work " in text
    assert "and is still under way" in text
    assert "Work of it is under way since " in text


async def test_a_manual_manifest(world):
    last = await declare(world, manual())
    await decide(
        world, last, cause="trigger:x", decision="queued", outcome="completed", actor="eve"
    )
    text = await explain(world, last)
    assert "it runs when it is triggered" in text
    assert "a trigger by eve fired: work " in text
    assert "completed" in text
    assert "It has no times: it runs when it is triggered." in await explain(world)


async def test_a_real_fire_is_explained(world):
    app = app_with(every(seconds=1))
    await world.serve(app)
    await world.scheduler(app)
    fired = await world.until(
        "SELECT first_due_at FROM scheduler.occurrence WHERE outcome = 'completed' LIMIT 1"
    )
    text = await explain(world, fired)
    assert "fired: work " in text
    assert text.endswith("and completed.")
    assert "m runs job 'job' in group 'ops': every second (UTC)." in await explain(world)
