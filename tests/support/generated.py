"""Much work with its history, written by statements of its own: no service could in a test's time."""

from headway_postgres_kit import Database

_AT_ONCE = 5000

# $1 the first number, $2 the last. Each piece of work completed in its first run, and history says
# so.
_WORKS = """
WITH made AS (
    SELECT md5('work' || number)::uuid AS work, md5('run' || number)::uuid AS run,
           md5('lease' || number)::uuid AS lease,
           clock_timestamp() - number * interval '1 ms' AS at, number
    FROM generate_series($1::integer, $2::integer) AS number
), groups AS (
    INSERT INTO dispatcher.group_limit (name) VALUES ('many') ON CONFLICT DO NOTHING
), works AS (
    INSERT INTO dispatcher.work_queue
        (id, round, slot, group_name, job, input, cause, queued_at, priority, rank, not_before,
         terms, state, runs, attempts,
         run_id, lease_id, outcome, settled_at, received_at)
    SELECT work, 1, 0, 'many', 'count', to_jsonb(number), 'trigger:' || number, at, 0, at, at,
           '{"retry": {"attempts": 3}}', 'settled', 1, 1, run, lease, 'completed', at, at
    FROM made
), leases AS (
    INSERT INTO dispatcher.lease
        (id, token, job, created_at, claimed_by, nonce, last_heard_at, ended_at)
    SELECT lease, 'secret', 'count', at, 'w', 'n', at, at FROM made
), runs AS (
    INSERT INTO dispatcher.metadata
        (run_id, work_id, lease_id, group_name, job, round, attempt, state, worker, host,
         created_at, started_at, start_heard_at, finished_at, max_run_seconds, output)
    SELECT run, work, lease, 'many', 'count', 1, 1, 'completed', 'w', 'h', at, at, at, at, 100,
           to_jsonb(number)
    FROM made
)
INSERT INTO dispatcher.history
    (event_id, type, subject, source, occurred_at, data, accepted, work_id, run_id, lease_id,
     recorded_at)
SELECT told.type || '.' || made.number, 'headway.' || told.type || '.v1', made.work::text,
       told.source, made.at, told.data, true, made.work, told.run, told.lease, made.at
FROM made
CROSS JOIN LATERAL (VALUES
    ('work.queued', 'headway/scheduler', jsonb_build_object(
        'work', work, 'group', 'many', 'job', 'count', 'input', number,
        'cause', 'trigger:' || number, 'queued_at', at, 'rank', at,
        'terms', '{"retry": {"attempts": 3}}'::jsonb), NULL::uuid, NULL::uuid),
    ('run.dispatched', 'headway/dispatcher', jsonb_build_object(
        'run', run, 'work', work, 'lease', lease, 'round', 1, 'attempt', 1, 'job', 'count',
        'group', 'many', 'max_run_seconds', 100), run, lease),
    ('lease.claimed', 'worker/w', jsonb_build_object('nonce', 'n', 'host', 'h'), NULL, lease),
    ('run.started', 'worker/w', '{"nonce": "n"}', run, lease),
    ('run.completed', 'worker/w', jsonb_build_object('nonce', 'n', 'output', number), run, lease),
    ('work.settled', 'headway/dispatcher', jsonb_build_object(
        'round', 1, 'outcome', 'completed', 'run', run, 'attempts', 1, 'settled_at', at),
     NULL, NULL)
) AS told (type, source, data, run, lease)
"""


async def make_works(database: Database, count: int) -> None:
    """Write so much work that has completed."""
    for first in range(1, count + 1, _AT_ONCE):
        async with database.transaction() as connection:
            await connection.execute(_WORKS, first, min(first + _AT_ONCE - 1, count))
