"""`verify` finds exactly the rows that differ from history; `rebuild` repairs them."""

import resource
from time import process_time
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio
from headway import App, Fatal, retry
from headway_clock import monotonic
from headway_contract.work import RetryPolicy
from headway_dispatcher.history.pages import FIRST, LAST
from headway_dispatcher.history.rebuild import ServicesRun, rebuild
from headway_dispatcher.history.verify import verify
from headway_dispatcher.store import HISTORY, projections
from headway_history import StoredEvent
from headway_history.rows import LetterRow, LetterRun, RunRow, WorkRow
from support.cadences import when_made_due
from support.generated import make_works
from support.world import World

pytestmark = pytest.mark.thorough

# Columns that do not follow from history, with the reason.
BOOKKEEPING = {
    "work_queue": {
        "wait_reason": "for people; the gate finds it out anew at every look",
        "hold_reason": "the gate's own mark, which it sets and takes away at every look",
        "concurrency_limit": "the database computes it from the terms",
    },
    "metadata": {},
    "dead_letter": {
        **dict.fromkeys(
            ("retry_requested_at", "retry_requested_by", "retry_input", "retry_key"),
            "a wish that waits for its slot",
        ),
    },
}


def demo() -> App:
    app = App("verify")

    @app.job("good")
    @when_made_due()
    async def good(ctx):
        return {"said": "hello"}

    @app.job("flaky")
    @when_made_due()
    @retry(attempts=3, interval=0.01)
    async def flaky(ctx):
        if ctx.attempt < 2:
            raise ValueError("not yet")

    @app.job("hopeless")
    @when_made_due()
    async def hopeless(ctx):
        raise Fatal("never")

    return app


@pytest_asyncio.fixture
async def settled(world: World) -> World:
    """Return a world in which work completed, was retried, and became a dead letter."""
    app = demo()
    await world.run(app)
    await world.until_settled(at_least=3)
    return world


@pytest_asyncio.fixture
async def stopped(settled: World) -> World:
    """Return the settled world with all services stopped for long enough."""
    await settled.stop()
    settled.services.clear()
    await settled.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
    return settled


async def test_it_is_true_of_a_system_that_runs(settled):
    verified = await verify(settled.database)
    assert verified.differences == []
    assert (verified.works, verified.runs, verified.dead_letters) == (3, 4, 1)
    assert verified.events == await settled.value("SELECT count(*) FROM dispatcher.history")


@pytest.mark.parametrize("row", [WorkRow, RunRow, LetterRow], ids=lambda row: row.table)
async def test_every_column_follows_from_history_or_says_why_not(world, row):
    table = row.table
    columns = await world.rows(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'dispatcher' AND table_name = $1",
        table,
    )
    accounted = set(row.__struct_fields__) | set(BOOKKEEPING[table])
    assert {row["column_name"] for row in columns} == accounted


async def test_rows_and_events_are_read_in_the_order_of_their_fields(settled):
    statements = {
        WorkRow: projections["works"],
        RunRow: projections["runs"],
        LetterRow: projections["letters"],
        StoredEvent: HISTORY._queries["of_works"],
    }
    for kind, statement in statements.items():
        rows = await settled.rows(statement, FIRST, LAST)
        assert tuple(rows[0].keys()) == kind.__struct_fields__


@pytest.mark.breaks_tables("corrupts one column after the other")
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("work_queue", "attempts", "attempts - 1"),
        ("work_queue", "input", "'\"forged\"'"),
        ("work_queue", "outcome", "'cancelled'"),
        ("work_queue", "settled_at", "settled_at + interval '1 us'"),
        ("metadata", "worker", "'somebody'"),
        ("metadata", "attempt", "attempt + 1"),
        ("metadata", "output", '\'{"said": "goodbye"}\''),
        ("metadata", "finished_at", "finished_at - interval '1 us'"),
        ("metadata", "reissued", "reissued + 1"),
        ("metadata", "begun_elsewhere", "begun_elsewhere + 1"),
        ("dead_letter", "reason", "'boredom'"),
        ("dead_letter", "failure", 'failure || \'{"message": "fine"}\''),
        ("dead_letter", "code_version", "'v7'"),
    ],
)
async def test_it_names_the_row_the_column_and_both_values(settled, table, column, value):
    key = "run_id" if table == "metadata" else "id"
    # Only a completed run has an output.
    before = await settled.rows(
        f"SELECT {key} AS key, {column} AS value FROM dispatcher.{table}"
        + (" WHERE state = 'completed'" if column == "output" else "")
    )
    row = before[0]
    await settled.value(
        f"UPDATE dispatcher.{table} SET {column} = {value} WHERE {key} = $1", row["key"]
    )
    after = await settled.value(
        f"SELECT {column} FROM dispatcher.{table} WHERE {key} = $1", row["key"]
    )
    [found] = (await verify(settled.database)).differences
    assert (found.table, found.row, found.column) == (table, row["key"], column)
    assert (found.expected, found.found) == (row["value"], after)


class TestLetters:
    """The runs of a dead letter and the edits of its input follow from history."""

    LETTER = "SELECT runs, edit FROM dispatcher.dead_letter WHERE id = $1"

    async def read(self, world: World, letter: UUID) -> tuple[list, list | None]:
        [row] = await world.rows(self.LETTER, letter)
        runs = msgspec.convert(row["runs"], list[LetterRun])
        return runs, row["edit"]

    @pytest_asyncio.fixture
    async def retried(self, ops) -> tuple[World, UUID]:
        """Return a dead letter of two runs that was retried with another input; services stopped."""
        await ops.world.scheduler(ops.app)
        work, letter = await ops.letter(
            input={"a": 1}, retry=RetryPolicy(attempts=2, interval_seconds=0)
        )
        ops.mended.set()
        await ops.world.until("SELECT count(*) FROM scheduler.job")
        await ops.client.retry(letter, input={"a": 2})
        await ops.until_outcome(work, "completed")
        await ops.world.stop()
        ops.world.services.clear()
        await ops.world.value(
            "UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'"
        )
        return ops.world, letter

    async def test_they_come_back_with_a_letter_that_was_lost(self, retried):
        world, letter = retried
        runs, edit = await self.read(world, letter)
        assert [run.attempt for run in runs] == [1, 2]
        assert [(change["path"], change["was"], change["now"]) for change in edit] == [("/a", 1, 2)]
        await world.value("DELETE FROM dispatcher.dead_letter")
        assert (await rebuild(world.database)).added == {"dead_letter": 1}
        assert await self.read(world, letter) == (runs, edit)
        assert (await verify(world.database)).differences == []

    async def test_changed_fields_are_found_and_repaired(self, retried):
        world, letter = retried
        before = await self.read(world, letter)
        for column, value in (
            ("runs", "'[]'"),
            ("runs", "jsonb_set(runs, '{0,worker}', '\"x\"')"),
            ("runs", "jsonb_set(runs, '{1,finished_at}', '\"2027-01-01T00:00:00+00:00\"')"),
            ("runs", "'\"rubbish\"'"),
            ("edit", "NULL"),
            ("edit", "jsonb_set(edit, '{0,now}', '3')"),
        ):
            await world.value(f"UPDATE dispatcher.dead_letter SET {column} = {value}")
            [found] = (await verify(world.database)).differences
            assert (found.table, found.row, found.column) == ("dead_letter", letter, column)
            assert (await rebuild(world.database)).changed == {"dead_letter": 1}
            assert await self.read(world, letter) == before

    WISH = (
        "retry_requested_at = now(), retry_requested_by = 'ada', retry_input = '{}',"
        ' edit = \'[{"path": "/a", "was": 1}]\''
    )

    async def test_a_pending_retry_is_left_alone(self, stopped):
        await stopped.value(f"UPDATE dispatcher.dead_letter SET {self.WISH}")
        assert (await verify(stopped.database)).differences == []
        wish = "SELECT retry_requested_by, retry_input, edit FROM dispatcher.dead_letter"
        before = await stopped.rows(wish)
        await stopped.value("UPDATE dispatcher.dead_letter SET reason = 'boredom'")
        await rebuild(stopped.database)
        assert await stopped.rows(wish) == before
        assert (await verify(stopped.database)).differences == []

    async def test_a_resolved_letter_waits_for_nothing(self, retried):
        world, _ = retried
        await world.value(
            "UPDATE dispatcher.dead_letter SET state = 'awaiting', resolved_at = NULL,"
            f" note = NULL, actor = NULL, {self.WISH}"
        )
        await rebuild(world.database)
        assert (await verify(world.database)).differences == []
        assert await world.value("SELECT retry_input IS NULL FROM dispatcher.dead_letter")


@pytest.mark.breaks_tables("deletes a row and invents another")
async def test_missing_rows_and_rows_without_history_are_found(settled):
    letter = await settled.value("DELETE FROM dispatcher.dead_letter RETURNING id")
    work, forged = await settled.value("SELECT id FROM dispatcher.work_queue"), uuid4()
    await settled.value(
        "INSERT INTO dispatcher.metadata SELECT (jsonb_populate_record(one,"
        " jsonb_build_object('run_id', $1::uuid, 'work_id', $2::uuid))).*"
        " FROM dispatcher.run AS one LIMIT 1",
        forged,
        work,
    )
    verified = await verify(settled.database)
    assert {
        (difference.table, difference.row, difference.kind) for difference in verified.differences
    } == {
        ("dead_letter", letter, "missing"),
        ("metadata", forged, "unknown"),
    }


async def test_it_stays_true_while_everything_goes_on(world):
    app = App("verify")

    @app.job("job")
    async def job(ctx, number: int): ...

    app.schedule_many("m", job=job, items={str(n): n for n in range(40)}, when=when_made_due())
    await world.run(app)
    while not await world.value(
        "SELECT count(*) = 40 FROM dispatcher.work_queue WHERE state = 'settled'"
    ):
        assert (await verify(world.database)).differences == []
    await world.until_settled(at_least=40)


@pytest.mark.timeout(400)
@pytest.mark.breaks_tables("corrupts one row among very many")
@pytest.mark.parametrize("many", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
async def test_one_corrupted_row_among_a_hundred_thousand(world, many):
    await make_works(world.database, many)
    async with world.database.acquire() as connection:
        await connection.execute("ANALYZE", timeout=60)
    corrupted = many * 7 // 9
    await world.value(
        "UPDATE dispatcher.metadata SET output = to_jsonb($1::integer + 1)"
        " WHERE run_id = md5('run' || $1::integer)::uuid",
        corrupted,
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = monotonic(), process_time()
    verified = await verify(world.database)
    seconds, worked = monotonic() - began, process_time() - worked
    [found] = verified.differences
    assert (found.table, found.column, found.expected, found.found) == (
        *("metadata", "output"),
        *(corrupted, corrupted + 1),
    )
    assert found.row == await world.value("SELECT md5('run' || $1::integer)::uuid", corrupted)
    assert (verified.works, verified.runs, verified.events) == (many, many, 6 * many)
    print(f"verified {many / seconds:.0f} runs a second ({seconds:.1f} s, {worked:.1f} s of work)")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    print(f"with {grown:.0f} MB more memory at most")
    assert grown < 200


@pytest.mark.breaks_tables("is refused before it repairs anything")
async def test_a_rebuild_is_refused_while_services_run(settled):
    await settled.value("UPDATE dispatcher.metadata SET attempt = 7")
    with pytest.raises(ServicesRun, match="headway-dispatcher"):
        await rebuild(settled.database)
    assert await settled.value("SELECT count(*) = 4 FROM dispatcher.run WHERE attempt = 7")


async def test_a_rebuild_is_refused_after_a_dispatcher_that_was_heard_of_just_now(stopped):
    await stopped.value("UPDATE dispatcher.witness SET last_heard_at = now()")
    with pytest.raises(ServicesRun, match="wait 10 s after its last heartbeat"):
        await rebuild(stopped.database)


async def test_a_rebuild_mends_what_was_corrupted_and_touches_nothing_else(stopped):
    before = await stopped.rows("SELECT run_id, xmin FROM dispatcher.metadata ORDER BY run_id")
    await stopped.value(
        "UPDATE dispatcher.metadata SET worker = 'x' WHERE run_id = $1", before[0][0]
    )
    await stopped.value("UPDATE dispatcher.work_queue SET outcome = 'expired', attempts = 0")
    await stopped.value("DELETE FROM dispatcher.dead_letter")
    rebuilt = await rebuild(stopped.database)
    assert rebuilt.changed == {"metadata": 1, "work_queue": 3}
    assert rebuilt.added == {"dead_letter": 1}
    assert (rebuilt.deleted, rebuilt.left_alone, rebuilt.leases_made) == ({}, {}, 0)
    assert (await verify(stopped.database)).differences == []
    after = await stopped.rows("SELECT run_id, xmin FROM dispatcher.metadata ORDER BY run_id")
    assert before[1:] == after[1:]


@pytest.mark.breaks_tables("the lease holder is lost with its row")
async def test_a_rebuild_brings_back_what_was_lost_altogether(stopped):
    await stopped.value(
        "TRUNCATE dispatcher.work_queue, dispatcher.metadata, dispatcher.dead_letter,"
        " dispatcher.lease, dispatcher.group_limit, dispatcher.run_log"
    )
    rebuilt = await rebuild(stopped.database)
    assert rebuilt.added == {"work_queue": 3, "metadata": 4, "dead_letter": 1}
    assert rebuilt.leases_made == 4
    assert (await verify(stopped.database)).differences == []
    again = await rebuild(stopped.database)
    assert (again.added, again.changed) == ({}, {})


async def test_rows_without_history_are_deleted_only_on_request(stopped):
    written = await stopped.value(
        "SELECT string_agg(column_name, ', ') FROM information_schema.columns"
        " WHERE table_schema = 'dispatcher' AND table_name = 'work_queue'"
        " AND is_generated = 'NEVER'"
    )
    await stopped.value(
        f"INSERT INTO dispatcher.work_queue ({written}) SELECT {written} FROM"
        " (SELECT (jsonb_populate_record(known, jsonb_build_object('id', $1::uuid))).*"
        "  FROM dispatcher.work_queue AS known LIMIT 1) AS copy",
        UUID(int=7),
    )
    assert (await rebuild(stopped.database)).left_alone == {"work_queue": 1}
    [found] = (await verify(stopped.database)).differences
    assert (found.kind, found.row) == ("unknown", UUID(int=7))
    assert (await rebuild(stopped.database, delete_unknown=True)).deleted == {"work_queue": 1}
