"""History that is older than it is, and the pass that deletes it."""

from datetime import date, datetime, timedelta

from headway import App, Fatal, retry
from headway_dispatcher.history.retention import Retention
from headway_postgres_kit import DATABASE_CLOCK

from support.cadences import when_made_due
from support.world import World

TABLES = ("work_queue", "metadata", "dead_letter", "lease", "inbox")


# Moves all records this number of days into the past, to one day from noon on, even if
# midnight came in between.
AGE = """
DO $do$
DECLARE
    back interval;
    old_day date;
BEGIN
    CREATE TEMPORARY TABLE aged AS SELECT * FROM dispatcher.history;
    DELETE FROM dispatcher.history;
    SELECT min(recorded_at) - date_trunc('day', min(recorded_at)) + interval '{days} days -12 hours'
    INTO back FROM aged;
    FOR old_day IN SELECT DISTINCT (recorded_at - back)::date FROM aged LOOP
        PERFORM dispatcher.add_history_day(old_day);
    END LOOP;
    INSERT INTO dispatcher.history
    SELECT id, event_id, type, subject, source, occurred_at, data, accepted, refusal, work_id,
           run_id, lease_id, recorded_at - back FROM aged;
    DROP TABLE aged;
END $do$
"""


def cleaner(world: World, *, days: float = 30.0, clock=DATABASE_CLOCK) -> Retention:
    world.database.clock = clock
    return Retention(world.database, days=days)


class ClockAhead:
    """A clock that runs ahead, so that recent events are old."""

    def __init__(self, **ahead: float) -> None:
        self.ahead = timedelta(**ahead)

    async def now(self, connection) -> datetime:
        return await DATABASE_CLOCK.now(connection) + self.ahead


async def counts(world: World) -> dict[str, int]:
    return {
        table: await world.value(f"SELECT count(*) FROM dispatcher.{table}") for table in TABLES
    }


async def known_days(world: World) -> set[date]:
    rows = await world.rows(
        "SELECT to_date(substr(relname, 9), 'YYYYMMDD') AS day FROM pg_inherits"
        " JOIN pg_class ON pg_class.oid = inhrelid"
        " WHERE inhparent = 'dispatcher.history'::regclass AND relname <> 'history_default'"
    )
    return {row["day"] for row in rows}


async def move_into_past(world: World, days: int) -> None:
    await world.value(AGE.format(days=days))


async def run_and_stop(world: World) -> World:
    """Return a stopped world with completed work, a dead letter, and work that waits for a retry."""
    app = App("old")

    @app.job("good")
    @when_made_due()
    async def good(ctx):
        return "fine"

    @app.job("hopeless")
    @when_made_due()
    async def hopeless(ctx):
        raise Fatal("never")

    @app.job("patient")
    @when_made_due()
    @retry(attempts=3, interval=3600)
    async def patient(ctx):
        raise ValueError("later")

    await world.serve(app)
    await world.fire(app)
    await world.until(
        "SELECT array_agg(state ORDER BY state) = '{settled,settled,waiting}'"
        " FROM dispatcher.work_queue"
    )
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    await world.stop()
    world.services.clear()
    return world
