"""Explanations of waiting work: its gates, slot holders and estimated start."""

from datetime import timedelta
from uuid import uuid4

import pytest
from headway import App, RequestFailed
from headway_contract.fields import Rate
from headway_contract.work import GroupChanged, ManifestChanged
from headway_contract.work_queue import ExplainWorkAnswer, WorkQuestion
from headway_dispatcher.operate import explain as explanations
from support.cadences import when_made_due
from support.gates import START, Gates, work

pytestmark = pytest.mark.thorough

SECOND = timedelta(seconds=1)


@pytest.fixture
async def gates(database, clock):
    made = Gates(database, clock=clock, max_active=100)
    await made.worker("etl", slots=2)
    return made


async def explain(gates: Gates, work_id) -> ExplainWorkAnswer:
    return await explanations.explain(
        gates.database, None, gates.settings, WorkQuestion(work=work_id)
    )


async def test_a_full_group_names_its_holders_and_the_work_ahead(gates, clock):
    await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
    works = [work(manifest=f"m-{n}", queued_at=START - (9 - n) * SECOND) for n in range(4)]
    await gates.queue(*works)
    await gates.drain()
    clock.at = START + 10 * SECOND
    answer = await explain(gates, works[3].work)
    assert (answer.state, answer.reason, answer.ahead) == ("queued", "group_cap", 2)
    closed = [gate for gate in answer.gates if not gate.open]
    assert [(gate.gate, gate.used, gate.limit) for gate in closed] == [("group_cap", 1, 1)]
    [holder] = answer.holders
    assert (holder.work, holder.manifest, holder.since) == (works[0].work, "m-0", START)
    assert answer.estimated_start is None
    assert "no run of job 'etl' has completed recently" in answer.estimate
    assert "1 of 1 active in group 'etl'" in answer.text
    assert f"run {holder.run} of manifest 'm-0'" in answer.text


@pytest.mark.breaks_tables("starts a run without an event")
async def test_an_estimate_uses_the_duration_of_recent_runs(gates, clock):
    await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
    works = [work(queued_at=START - (9 - n) * SECOND) for n in range(3)]
    await gates.queue(*works)
    await gates.drain()
    await gates.begin(works[0].work)
    clock.at = START + 30 * SECOND
    await gates.end()
    await gates.drain()
    clock.at = START + 40 * SECOND
    answer = await explain(gates, works[2].work)
    assert answer.estimated_start == START + 60 * SECOND
    assert answer.estimate == "1 recent run of its job took a median of 30.0 s, 0 before it"
    assert "It may start about 2027-03-01 12:01:00 UTC" in answer.text


async def test_a_key_names_its_holder_and_the_work_ahead(gates):
    works = [work(concurrency_key="k", queued_at=START - (9 - n) * SECOND) for n in range(3)]
    await gates.queue(*works)
    await gates.drain()
    answer = await explain(gates, works[2].work)
    assert (answer.reason, answer.ahead) == ("key", 1)
    assert [holder.work for holder in answer.holders] == [works[0].work]


async def test_a_rate_limit_gives_an_estimate(gates):
    await gates.tell(GroupChanged(group="etl", version=1, rate=Rate(count=1, period_seconds=60)))
    works = [work(queued_at=START - (9 - n) * SECOND) for n in range(3)]
    await gates.queue(*works)
    await gates.drain()
    answer = await explain(gates, works[2].work)
    assert (answer.reason, answer.ahead) == ("rate", 1)
    assert answer.estimated_start == START + 120 * SECOND


async def test_a_start_that_cannot_be_estimated_has_no_estimate(gates):
    manifest = uuid4()
    [held] = await gates.queue(work(manifest_id=manifest, manifest="m"))
    await gates.tell(
        ManifestChanged(manifest_id=manifest, manifest="m", group="etl", version=1, enabled=False)
    )
    answer = await explain(gates, held)
    assert (answer.reason, answer.ahead, answer.estimated_start) == (
        "manifest_disabled",
        None,
        None,
    )
    [unserved] = await gates.queue(work(job="nobody", start_by=START + 60 * SECOND))
    answer = await explain(gates, unserved)
    assert (answer.reason, answer.estimated_start) == ("no_worker", None)
    assert answer.expires_at == START + 60 * SECOND
    assert "It expires at 2027-03-01 12:01:00 UTC" in answer.text


async def test_work_is_explained_in_every_state(gates, clock):
    hour = START + 3600 * SECOND
    [later] = await gates.queue(work(not_before=START + 60 * SECOND, start_by=hour))
    answer = await explain(gates, later)
    assert (answer.reason, answer.estimated_start) == ("not_before", START + 60 * SECOND)
    clock.at = START + 60 * SECOND
    assert (await explain(gates, later)).reason == "awaiting_gate"
    await gates.drain()
    answer = await explain(gates, later)
    assert (answer.state, answer.gates) == ("dispatched", [])
    assert "no worker has claimed it yet. It expires at 2027-03-01 13:00:00" in answer.text
    await gates.begin(later)
    assert (await explain(gates, later)).expires_at is None
    await gates.end()
    assert (
        "is settled since 2027-03-01 12:01:00 UTC: completed" in (await explain(gates, later)).text
    )


async def test_a_client_explains_work(world, client):
    app = App("test")
    app.group("closed", max_active=0)

    @app.job("job", group="closed")
    @when_made_due()
    async def job(ctx): ...

    await world.run(app)
    waits = await world.until("SELECT id FROM dispatcher.waiting")
    answer = await client.explain_work(waits)
    assert answer.reason == "group_cap"
    assert (await client.explain_work(str(waits))).work == waits
    with pytest.raises(RequestFailed, match="is not known to the dispatcher"):
        await client.explain_work(uuid4())
    with pytest.raises(RequestFailed, match="is not a work id"):
        await client.explain_work("sync-ada")
