-- name: tellers
-- Runs that news came of. Rows that somebody else is at are left for the next time, so that
-- nobody waits for news; locked in a fixed order. $1 runs.
SELECT metadata.run_id, metadata.log_bytes, lease.id AS lease_id, lease.token, lease.claimed_by,
       lease.ended_at
FROM dispatcher.metadata
JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE metadata.run_id = ANY($1::uuid[])
ORDER BY metadata.run_id
FOR NO KEY UPDATE OF metadata SKIP LOCKED

-- name: keep
-- The latest news of runs, unless what is known is newer, and their lines. $1 runs, $2 numbers
-- of the news, $3 the news, $4 lines dropped up to now, $5 runs of the lines, $6 numbers of the
-- lines, $7 their times, $8 levels, $9 messages, $10 fields, $11 what each line takes of its
-- run's room.
WITH line AS (
    INSERT INTO dispatcher.run_log (run_id, number, at, level, message, fields, size)
    SELECT told.* FROM unnest($5::uuid[], $6::integer[], $7::timestamptz[], $8::text[], $9::text[],
                              $10::jsonb[], $11::integer[]) AS told
    ON CONFLICT DO NOTHING
    RETURNING run_id, size
), used AS (
    SELECT run_id, sum(size) AS bytes FROM line GROUP BY run_id
)
UPDATE dispatcher.metadata
SET progress = CASE WHEN told.number > coalesce((metadata.progress ->> 'number')::bigint, 0)
                    THEN told.progress ELSE metadata.progress END,
    log_dropped = greatest(metadata.log_dropped, told.dropped),
    log_bytes = metadata.log_bytes + coalesce(used.bytes, 0)
FROM unnest($1::uuid[], $2::bigint[], $3::jsonb[], $4::integer[])
        AS told (run_id, number, progress, dropped)
LEFT JOIN used ON used.run_id = told.run_id
WHERE metadata.run_id = told.run_id
