"""Work that applications enqueue in their own transactions."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import headway
import pytest
import pytest_asyncio
from headway import App
from headway_cli.serve.servers import apply_migrations
from headway_contract import decode
from headway_contract.work import RetryPolicy, WorkQueued
from headway_postgres_kit import Database
from headway_relay import Handover
from headway_scheduler.operate.enqueue import Enqueue, republish_enqueued
from headway_scheduler.store import enqueue_role_is_missing
from support.enqueuing import app_with_jobs, count, outcome, process, retried
from support.timeline import Timeline

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def timeline(timeline) -> Timeline:
    await timeline.declare(app_with_jobs())
    return timeline


async def test_enqueued_work_has_the_terms_of_its_job(timeline, application):
    work = await headway.enqueue(application, "mail", 7)
    await process(timeline)
    [event] = await timeline.outbox(WorkQueued)
    assert (event.work, event.job, event.input, event.group) == (work, "mail", 7, "letters")
    assert (event.priority, event.terms.timeout_seconds, event.terms.cancel_grace_seconds) == (
        3,
        90,
        5,
    )
    assert event.terms.retry == RetryPolicy(attempts=5, interval_seconds=7)
    assert (event.manifest_id, event.manifest, event.due_at, event.not_before) == (None,) * 4
    assert event.cause == f"enqueue:mail:{work}"
    rows = await timeline.rows("SELECT id, manifest_id, cause, round FROM scheduler.work")
    assert [tuple(row) for row in rows] == [(work, None, event.cause, 1)]
    [kept] = await timeline.rows("SELECT state, input FROM scheduler.enqueued")
    assert tuple(kept) == ("queued", 7), "it can be republished"
    groups = await timeline.rows("SELECT name FROM scheduler.manifest_group")
    assert [row["name"] for row in groups] == ["letters"], "an operator can limit it"
    await timeline.tell(outcome(work))
    assert (await count(timeline, "work"), await count(timeline, "enqueued")) == (0, 0)


async def test_options_override_the_terms_of_the_job(timeline, application):
    start_by = datetime(2030, 1, 1, tzinfo=UTC)
    before = datetime.now(UTC)
    await headway.enqueue(
        application, "mail", 7, group="other", priority=9, delay=60, start_by=start_by
    )
    not_before = datetime(2029, 1, 1, tzinfo=UTC)
    await headway.enqueue(application, "mail", 8, priority=0, not_before=not_before)
    await process(timeline)
    first, second = sorted(await timeline.outbox(WorkQueued), key=lambda item: item.input)
    assert (first.group, first.priority, first.start_by) == ("other", 9, start_by)
    minute = timedelta(seconds=60)
    assert before + minute <= first.not_before <= datetime.now(UTC) + minute
    assert (second.priority, second.not_before) == (0, not_before)


async def test_a_delay_counts_from_enqueuing_on_the_clock_of_the_schedule(timeline, application):
    await headway.enqueue(application, "sweep", delay=3600)
    await application.execute(
        "UPDATE scheduler.enqueued SET enqueued_at = enqueued_at - interval '10 minutes'"
    )
    await Enqueue(timeline.database, relay=Handover()).run_once()
    [event] = await timeline.outbox(WorkQueued)
    waits = event.not_before - timeline.clock.at
    assert timedelta(minutes=49) < waits <= timedelta(minutes=50)


async def test_a_rolled_back_transaction_enqueues_nothing(timeline, application):
    with pytest.raises(ZeroDivisionError):
        async with application.transaction():
            await headway.enqueue(application, "mail", 1, key="k")
            raise ZeroDivisionError
    async with application.transaction():
        await headway.enqueue(application, "mail", 2, key="k")
        await process(timeline)
        assert await timeline.outbox(WorkQueued) == [], "it does not exist before the commit"
    await process(timeline)
    assert [work.input for work in await timeline.outbox(WorkQueued)] == [2]


@pytest.mark.parametrize(
    ("job", "given", "error", "complaint"),
    [
        ("nobody", {}, asyncpg.UndefinedObjectError, 'job "nobody" is not declared'),
        ("sweep", {"input": 1}, asyncpg.InvalidParameterValueError, "takes no input"),
        ("free", {"input": "x" * 262_144}, asyncpg.InvalidParameterValueError, "larger than"),
        ("mail", {"group": "a b"}, asyncpg.InvalidParameterValueError, "the group must"),
        ("mail", {"group": "a\n"}, asyncpg.InvalidParameterValueError, "the group must"),
        ("mail", {"priority": 32}, asyncpg.InvalidParameterValueError, "from 0 to 31"),
        ("mail", {"delay": -1}, asyncpg.InvalidParameterValueError, "the delay must"),
        ("mail", {"key": ""}, asyncpg.InvalidParameterValueError, "1 to 255 characters"),
        ("mail", {"key": "x" * 256}, asyncpg.InvalidParameterValueError, "1 to 255 characters"),
        (
            "mail",
            {"delay": 1, "not_before": datetime(2030, 1, 1, tzinfo=UTC)},
            asyncpg.InvalidParameterValueError,
            "either a delay or a not_before",
        ),
    ],
)
async def test_invalid_calls_are_refused_at_once(
    timeline, application, job, given, error, complaint
):
    with pytest.raises(error, match=complaint):
        await headway.enqueue(application, job, **given)
    assert await count(timeline, "enqueued") == 0


async def test_times_outside_the_supported_years_are_refused(timeline, application):
    for moment in ("infinity", "-infinity", "20000-01-01"):
        for name in ("not_before", "start_by"):
            with pytest.raises(asyncpg.InvalidParameterValueError, match="in the years"):
                await application.execute(f"SELECT headway.enqueue('sweep', {name} => '{moment}')")


async def test_an_input_that_does_not_fit_is_refused_and_stays_visible(timeline, application):
    bad = await headway.enqueue(application, "mail", "seven", key="k")
    deep = await application.fetchval(
        "SELECT headway.enqueue('free', (repeat('[', 3000) || repeat(']', 3000))::jsonb)"
    )
    huge = await application.fetchval("SELECT headway.enqueue('free', '1e400'::jsonb)")
    good = await headway.enqueue(application, "mail", 7)
    await process(timeline)
    assert [
        work.work for work in await timeline.outbox(WorkQueued) if work.work not in (deep, huge)
    ] == [good]
    rows = await timeline.rows("SELECT work_id, state, reason FROM scheduler.enqueued")
    refused = {row["work_id"]: row["reason"] for row in rows if row["state"] == "refused"}
    assert "is not of type" in refused[bad]
    assert "it cannot be read" in refused[deep]
    assert await headway.enqueue(application, "mail", "seven", key="k") == bad


async def test_refused_work_is_checked_again_when_its_job_changes(timeline, application):
    work = await headway.enqueue(application, "mail", "seven")
    enqueue = Enqueue(timeline.database, relay=Handover())
    await enqueue.run_once()
    await enqueue.look_again()
    await enqueue.run_once()
    assert await timeline.outbox(WorkQueued) == []
    app = App("shop")
    app.job("mail")(lambda ctx, text: None)
    timeline.at(minutes=1)
    await timeline.declare(app)
    await enqueue.look_again()
    await enqueue.run_once()
    assert [(item.work, item.input) for item in await timeline.outbox(WorkQueued)] == [
        (work, "seven")
    ]


async def test_lost_work_is_republished(timeline, application):
    work = await headway.enqueue(application, "mail", 7, key="k", delay=60, priority=9)
    await headway.enqueue(application, "mail", 8)
    await process(timeline)
    [first] = [item for item in await timeline.outbox(WorkQueued) if item.work == work]
    # Hours later on the scheduler's clock, a moment later on PostgreSQL's clock.
    now = timeline.at(hours=5)
    async with timeline.database.transaction() as connection:
        [message] = await republish_enqueued(connection, [work, uuid4()], now=now)
    [again] = [item.data for item in decode(message.body)]
    assert again == first


async def test_lost_work_that_no_longer_fits_its_job_is_refused(timeline, application):
    work = await headway.enqueue(application, "mail", 7)
    await process(timeline)
    app = App("shop")
    app.job("mail")(lambda ctx: None)
    await timeline.declare(app)
    async with timeline.database.transaction() as connection:
        assert await republish_enqueued(connection, [work], now=timeline.clock.at) == []
    [row] = await timeline.rows("SELECT state, reason FROM scheduler.enqueued")
    assert tuple(row) == ("refused", "invalid_input: the job takes no input")
    assert await count(timeline, "work") == 0


async def test_concurrent_schedulers_process_each_row_once(timeline, application):
    await application.execute(
        "SELECT headway.enqueue('mail', to_jsonb(n)) FROM generate_series(1, 1200) AS n"
    )
    passes = [Enqueue(timeline.database, relay=Handover()) for _ in range(3)]

    async def run_until_empty(enqueue: Enqueue) -> None:
        while await enqueue.run_once() is not None or await timeline.rows(
            "SELECT FROM scheduler.enqueued WHERE state = 'waiting'"
        ):
            pass

    await asyncio.gather(*map(run_until_empty, passes))
    assert sorted(work.input for work in await timeline.outbox(WorkQueued)) == list(range(1, 1201))
    assert await count(timeline, "work") == 1200


class TestRounds:
    """Events of work without a manifest, in any order."""

    @pytest_asyncio.fixture
    async def dead(self, timeline, application) -> UUID:
        work = await headway.enqueue(application, "mail", 7)
        await process(timeline)
        await timeline.tell(outcome(work, outcome="dead_lettered", dead_letter=uuid4()))
        assert await count(timeline, "work") == 0
        return work

    async def test_a_retried_dead_letter_is_outstanding_again(self, timeline, dead):
        await timeline.tell(retried(dead))
        rows = await timeline.rows("SELECT id, round, manifest_id FROM scheduler.work")
        assert [tuple(row) for row in rows] == [(dead, 2, None)]
        await timeline.tell(outcome(dead))
        assert await count(timeline, "work") == 1, "the end of the first round is outdated"
        await timeline.tell(outcome(dead, round=2))
        assert await count(timeline, "work") == 0

    async def test_an_end_that_comes_before_its_beginning(self, timeline, dead):
        await timeline.tell(outcome(dead, round=2))
        await timeline.tell(retried(dead))
        assert await count(timeline, "work") == 0


class TestRole:
    async def test_the_enqueue_role_may_only_enqueue(self, timeline, application):
        await application.execute("SET ROLE headway_enqueue")
        work = await headway.enqueue(application, "mail", 7, key="k")
        assert await headway.enqueue(application, "mail", 7, key="k") == work
        for forbidden in (
            "SELECT * FROM scheduler.enqueued",
            "INSERT INTO scheduler.enqueued DEFAULT VALUES",
            "SELECT * FROM scheduler.job",
            "DELETE FROM scheduler.work",
            "CREATE TABLE headway.mine ()",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await application.execute(forbidden)

    async def test_other_roles_may_not_enqueue(self, timeline, application):
        await application.execute("CREATE ROLE stranger")
        try:
            await application.execute("GRANT USAGE ON SCHEMA headway TO stranger")
            await application.execute("SET ROLE stranger")
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="function enqueue"):
                await headway.enqueue(application, "mail", 7)
        finally:
            await application.execute("RESET ROLE; DROP OWNED BY stranger; DROP ROLE stranger")

    async def test_the_search_path_of_the_caller_has_no_effect(self, timeline, application):
        await application.execute("""
            CREATE SCHEMA evil;
            CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql
                AS 'SELECT NULL::timestamptz';
            CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
            SET search_path = evil, pg_catalog, public;
        """)
        assert await headway.enqueue(application, "mail", 7, key="k")
        [row] = await timeline.rows(
            "SELECT prosecdef, proconfig FROM pg_proc WHERE oid = 'headway.enqueue'::regproc"
        )
        assert tuple(row) == (True, ["search_path=pg_catalog, pg_temp"])

    async def test_an_administrator_may_create_the_role_later(self, postgres):
        """A migration without permission to create roles reports the missing role."""
        admin = await asyncpg.connect(postgres.url)
        url = await postgres.new_database(template="template0")
        name = url.rpartition("/")[2].partition("?")[0]
        try:
            await admin.execute("ALTER ROLE headway_enqueue RENAME TO headway_enqueue_elsewhere")
            await admin.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
            await admin.execute(f"ALTER DATABASE {name} OWNER TO plain")
            plain = await Database.connect(_as_user(url, "plain"), name="test")
            try:
                await apply_migrations(plain)
                assert await enqueue_role_is_missing(plain)
                await admin.execute("CREATE ROLE headway_enqueue NOLOGIN")
                assert await enqueue_role_is_missing(plain), "the role has no privileges yet"
                async with plain.acquire() as connection:
                    await connection.execute("GRANT USAGE ON SCHEMA headway TO headway_enqueue")
                    await connection.execute(
                        "GRANT EXECUTE ON FUNCTION headway.enqueue TO headway_enqueue"
                    )
                assert not await enqueue_role_is_missing(plain)
            finally:
                await plain.close()
        finally:
            await postgres.drop(url)
            await admin.execute("DROP ROLE IF EXISTS plain; DROP ROLE IF EXISTS headway_enqueue")
            await admin.execute("ALTER ROLE headway_enqueue_elsewhere RENAME TO headway_enqueue")
            await admin.close()


def _as_user(url: str, name: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{name}:{name}@{rest.rpartition('@')[2]}"
