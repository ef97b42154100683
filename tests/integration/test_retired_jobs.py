"""Retired jobs, which no application declares: no new work, a warning, and deletion."""

from datetime import timedelta

import asyncpg
import headway
import pytest
from headway import App, every
from headway.define.definitions import Definitions
from headway.define.packing import pack
from headway_contract.definitions import ApplyRequest
from headway_contract.lifecycle import Activation
from headway_contract.manifests import BackfillRequest
from headway_contract.work import JobChanged
from headway_errors import Rejected
from headway_relay import Handover
from headway_scheduler.declare.plan import plan
from headway_scheduler.operate.backfill import backfill
from headway_scheduler.operate.enqueue import Enqueue
from headway_scheduler.outcomes import activate
from msgspec import structs

pytestmark = pytest.mark.thorough


def app_with(*jobs: str, owner: str = "billing", manifests: bool = True) -> App:
    """Return an application with an hourly manifest for each job, of the same name."""
    app = App(owner)
    for name in jobs:
        app.job(name)(lambda ctx: None)
        if manifests:
            app.schedule(f"{owner}-{name}", job=name, when=every(hours=1))
    return app


def using(job: str, *manifests: str) -> Definitions:
    """Return an application whose manifests use a job that another application declares."""
    app = App("crm")
    app.job(job)(lambda ctx: None)
    for name in manifests:
        app.schedule(name, job=job, when=every(hours=1))
    return structs.replace(app.definitions(), jobs=())


async def jobs(timeline) -> dict[str, bool]:
    """Return every stored job, and whether it is retired."""
    rows = await timeline.rows("SELECT name, retired_at FROM scheduler.job")
    return {row["name"]: row["retired_at"] is not None for row in rows}


async def announced(timeline, job: str) -> list[JobChanged]:
    return [data for data in await timeline.outbox(JobChanged) if data.job == job]


async def test_a_job_that_leaves_the_code_is_retired_and_announced_and_may_come_back(timeline):
    await timeline.declare(app_with("mail", "report"))
    await timeline.declare(app_with("mail"))
    assert await jobs(timeline) == {"mail": False, "report": True}
    await timeline.declare(app_with("mail"))
    await timeline.declare(app_with("mail", "report"))
    assert await jobs(timeline) == {"mail": False, "report": False}
    changes = await announced(timeline, "report")
    assert [change.retired for change in changes] == [False, True, False], (
        "and only when it changes"
    )
    assert sorted({change.version for change in changes}) == [change.version for change in changes]
    audited = await timeline.rows(
        "SELECT subject FROM scheduler.history WHERE type = 'headway.job.retired.v1'"
    )
    assert [row["subject"] for row in audited] == ["report"]


async def test_a_job_of_two_applications_retires_with_the_last_of_them(timeline):
    await timeline.declare(app_with("mail", "report"))
    await timeline.declare(app_with("mail", owner="crm"))
    await timeline.declare(app_with("mail", owner="crm"))
    await timeline.declare(app_with("report"))
    assert await jobs(timeline) == {"mail": False, "report": False}
    await timeline.declare(app_with(owner="crm"))
    assert await jobs(timeline) == {"mail": True, "report": False}
    other = App("crm")
    other.job("mail")(lambda ctx, number: None)
    await timeline.declare(other)
    assert not (await jobs(timeline))["mail"], "a retired name is free, also for another input"


async def test_every_way_to_make_new_work_is_refused_with_the_reason(
    timeline, application, world, client
):
    await timeline.declare(app_with("mail", "report"))
    work = await headway.enqueue(application, "report", key="k")
    # Enqueue in a transaction that began before the job was retired, and commits after it.
    transaction = application.transaction()
    await transaction.start()
    late = await headway.enqueue(application, "report")
    await timeline.declare(app_with("mail"), prune="keep")
    await transaction.commit()
    with timeline.real_time():
        await Enqueue(timeline.database, relay=Handover()).run_once()
    refused = await timeline.rows(
        "SELECT work_id, reason FROM scheduler.enqueued WHERE state = 'refused'"
    )
    assert {row["work_id"] for row in refused} == {work, late}
    assert "'report' is retired" in refused[0]["reason"]
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match='job "report" is retired'):
        await headway.enqueue(application, "report")
    assert await headway.enqueue(application, "report", key="k") == work, "a key finds its work"
    with pytest.raises(Rejected, match=r"'report' is retired.*declare the job again"):
        await timeline.trigger("billing-report")
    past = BackfillRequest(
        manifest="billing-report",
        since=timeline.clock.at - timedelta(hours=5),
        until=timeline.clock.at,
    )
    with pytest.raises(Rejected, match=r"'report' is retired.*declare the job again"):
        await timeline.do(backfill, past)
    await world.dispatcher()
    await world.scheduler(tick="off")
    with pytest.raises(Rejected, match=r'"report" is retired.*Declare the job again'):
        await client.enqueue("report")
    with pytest.raises(Rejected, match="'report' is retired"):
        await client.schedule("another", job="report", when=every(hours=1))


async def test_manifests_that_use_a_retired_job_hold_and_go_on_when_it_returns(timeline):
    await timeline.declare(app_with("mail", "report"))
    kept = await timeline.declare(app_with("mail"), prune="keep")
    assert "job 'report' is retired" in kept.warnings[-1]
    assert "'billing-report' (of application 'billing')" in kept.warnings[-1]
    assert (await timeline.tick(hours=2)).fired == 1, "the other one"
    again = await timeline.declare(app_with("mail"), prune="keep")
    assert "job 'report' is retired" in again.warnings[-1], "at every start"
    await timeline.declare(app_with("mail", "report"))
    [skipped] = await timeline.rows(
        "SELECT reason, decision FROM scheduler.occurrence JOIN scheduler.manifest"
        " ON manifest.id = manifest_id WHERE job = 'report'"
    )
    assert tuple(skipped) == ("job_retired", "skipped")
    await timeline.tick(hours=3)
    assert len(await timeline.under_way("billing-report")) == 1


async def test_a_plan_says_which_jobs_would_retire_and_which_manifests_would_hold(timeline):
    await timeline.declare(app_with("mail", "report"))
    other = using("mail", "crm-mail")
    await timeline.declare(other)

    async def planned(app: App, policy) -> str:
        request = ApplyRequest(definitions=pack(app.definitions()))
        answer = await plan(timeline.database, request, policy=policy)
        return "\n".join(answer.warnings)

    warned = await planned(app_with(), "delete")
    assert "job 'mail' is no longer declared: it would be retired" in warned
    assert "job 'report' is no longer declared: it would be retired" in warned
    assert "'crm-mail' (of application 'crm')" in warned
    assert "'billing-report'" not in warned, "it would be deleted"
    assert "'billing-report'" in await planned(app_with(), "keep")
    assert await jobs(timeline) == {"mail": False, "report": False}, "nothing has changed"
    await timeline.declare(app_with())
    # The other application starts as before with a warning, but cannot add such a manifest.
    assert "'crm-mail'" in (await timeline.declare(other)).warnings[-1]
    with pytest.raises(headway.InvalidDefinitions, match=r"^manifest 'crm-new': job 'mail' is re"):
        await timeline.declare(using("mail", "crm-mail", "crm-new"))


async def test_a_run_cannot_activate_a_dependent_of_a_retired_job(timeline):
    app = app_with("mail")
    app.job("report")(lambda ctx: None)
    app.manifest("billing-mail").then("follow", job="report", dormant=True)
    await timeline.declare(app)
    await timeline.rows(
        "UPDATE scheduler.job SET retired_at = now(), declared_by = '{}' WHERE name = 'report'"
    )
    async with timeline.database.acquire() as connection:
        [problem] = await activate.problems(
            connection, "billing-mail", [Activation(manifest="follow", key="1")]
        )
    assert "'report' is retired" in problem


async def test_a_retired_job_is_deleted_once_the_dispatcher_knows_and_nothing_refers_to_it(
    world, nats_url
):
    await world.declare(app_with("mail", "report", "sync"))
    kept = app_with("mail", "report")
    await world.declare(kept, prune="keep")
    await world.declare(app_with("mail"))
    retired = "SELECT array_agg(name ORDER BY name) FROM scheduler.job WHERE retired_at IS NOT NULL"
    version = await world.value("SELECT version FROM scheduler.job WHERE name = 'report'")
    assert await world.value(retired) == ["report", "sync"]
    # The announcement is lost: only reconciliation informs the dispatcher.
    await world.value("DELETE FROM scheduler.outbox WHERE message_id LIKE 'job.%'")
    await world.scheduler(app_with("mail"), prune="keep", ask_after_seconds=0.4)
    await world.dispatcher()
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.job WHERE name = 'report')")
    known = await world.value("SELECT version FROM dispatcher.job_limit WHERE name = 'report'")
    assert known == version
