"""Operators change the settings of manifests, groups and jobs, and give them back."""

from functools import partial

import pytest
from headway import App, manual
from headway_contract.operations import ChangeGroupRequest, ChangeJobRequest
from headway_contract.work import GroupChanged, JobChanged
from headway_errors import Invalid, Rejected
from headway_scheduler.operate import changes
from support.timeline import minutely

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"attempts": 5, "give_back": ["retry"]}, "'a': attempts cannot be changed and given back"),
        ({"enabled": True, "give_back": ["enabled"]}, "enabled cannot be changed and given back"),
        ({"jitter_seconds": 5}, "'b' has no fire times of its own, so a jitter has no meaning"),
    ],
)
async def test_a_change_that_means_nothing_is_refused(timeline, fields, complaint):
    app = minutely()
    app.schedule("b", job="job", when=manual())
    await timeline.declare(app)
    named = "b" if "jitter_seconds" in fields else "a"
    with pytest.raises(Invalid, match=complaint):
        await timeline.change(named, **fields)
    group = ChangeGroupRequest(group="ops", priority=1, give_back=["priority"])
    with pytest.raises(Invalid, match="group 'ops': priority cannot be changed and given"):
        await timeline.do(changes.change_group, group)
    job = ChangeJobRequest(job="job", rate=None, give_back=["rate"])
    with pytest.raises(Invalid, match="job 'job': rate cannot be changed and given back"):
        await timeline.do(changes.change_job, job)


async def test_the_answer_to_a_change_that_changes_only_the_owner(timeline):
    await timeline.declare(minutely(enabled=False))

    async def change_text(**fields) -> str:
        text = await timeline.change("a", **fields)
        return text.removeprefix("a: ")

    assert await change_text(enabled=False) == "disabled", "the operator owns the field now"
    assert await change_text(enabled=False) == "nothing to change"
    assert await change_text(enabled=True) == "enabled"
    assert await change_text(attempts=4) == "4 attempts, 60 s apart at first"
    assert await change_text(attempts=4) == "nothing to change"
    assert await change_text(give_back=["enabled"]) == "the code owns it again"
    assert await change_text(enabled=True) == (
        "values unchanged, but the code no longer decides about enabled"
    )
    assert await timeline.change_group("ops", enabled=True) == (
        "group ops: values unchanged, but the code no longer decides about enabled"
    )


async def test_limits_of_a_group_are_the_operators_once_touched(timeline):
    app = minutely()
    app.group("ops", max_active=3)
    await timeline.declare(app)
    await timeline.change_group("ops", max_active=1, actor="me")
    await timeline.declare(app)
    rows = await timeline.rows("SELECT max_active, operator_fields FROM scheduler.manifest_group")
    assert (rows[0]["max_active"], rows[0]["operator_fields"]) == (1, ["max_active"])
    versions = [change.version for change in await timeline.outbox(GroupChanged)]
    assert versions == sorted(versions)
    await timeline.change_group("ops", give_back=["max_active"])
    rows = await timeline.rows("SELECT max_active, operator_fields FROM scheduler.manifest_group")
    assert (rows[0]["max_active"], rows[0]["operator_fields"]) == (3, [])
    with pytest.raises(Rejected, match="no group 'nobody'"):
        await timeline.change_group("nobody", priority=1)


async def test_a_setting_that_no_code_states_returns_to_its_default_when_given_back(timeline):
    await timeline.declare(minutely())
    everything = {"max_active": 1, "priority": 9, "enabled": False}
    await timeline.change_group("ops", **everything)
    text = await timeline.change_group("ops", give_back=list(everything))
    assert text == "group ops: any number at once, priority 0, enabled"
    [row] = await timeline.rows("SELECT * FROM scheduler.manifest_group")
    assert (row["max_active"], row["priority"], row["enabled"]) == (None, 0, True)


async def test_limits_of_a_job_are_the_operators_until_they_are_given_back(timeline):
    app = App("test")
    app.job("sync", max_active=3, rate="100/minute")(lambda ctx: None)
    await timeline.declare(app)

    async def limits() -> tuple:
        latest = (await timeline.outbox(JobChanged))[-1]
        return latest.max_active, latest.rate and latest.rate.count

    ask = partial(timeline.do, changes.change_job)
    assert await limits() == (3, 100)
    assert await ask(ChangeJobRequest(job="sync", max_active=1, rate=None, actor="me")) == (
        "job sync: at most 1 at once, at any rate"
    )
    await timeline.declare(app)
    assert await limits() == (1, None), "a declaration publishes the limits in force"
    assert "nothing to change" in await ask(ChangeJobRequest(job="sync", max_active=1))
    back = ChangeJobRequest(job="sync", give_back=["max_active", "rate"])
    assert await ask(back) == "job sync: at most 3 at once, at most 100/minute"
    assert await limits() == (3, 100)
    versions = [change.version for change in await timeline.outbox(JobChanged)]
    assert versions == sorted(versions)
    rows = await timeline.rows(
        "SELECT source, data FROM scheduler.history WHERE type = 'headway.job.changed.v1'"
    )
    assert [(row["source"], row["data"]["max_active"]) for row in rows] == [
        ("operator/me", 1),
        ("operator/unknown", 3),
    ]
    with pytest.raises(Rejected, match="no job 'nobody': declared are sync"):
        await ask(ChangeJobRequest(job="nobody", max_active=1))
