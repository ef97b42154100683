-- name: reporting_runs
-- Lock reporting runs in a fixed order; skip locked rows, because nothing should wait for reports.
-- $1 runs.
SELECT metadata.run_id AS run, metadata.log_bytes, lease.id AS lease, lease.token,
       lease.claimed_by, lease.ended_at
FROM dispatcher.metadata
JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE metadata.run_id = ANY($1::uuid[])
ORDER BY metadata.run_id
FOR NO KEY UPDATE OF metadata SKIP LOCKED

-- name: keep
-- Store the latest report of each run, unless a newer one is stored, and log lines. $1 runs, $2
-- numbers of the reports, $3 reports, $4 lines dropped so far, $5 runs of the lines, $6 numbers of
-- the lines, $7 times, $8 levels, $9 messages, $10 fields, $11 sizes.
WITH line AS (
    INSERT INTO dispatcher.run_log (run_id, number, at, level, message, fields, size)
    SELECT item.* FROM unnest($5::uuid[], $6::integer[], $7::timestamptz[], $8::text[], $9::text[],
                              $10::jsonb[], $11::integer[]) AS item
    ON CONFLICT DO NOTHING
    RETURNING run_id, size
), used AS (
    SELECT run_id, sum(size) AS bytes FROM line GROUP BY run_id
)
UPDATE dispatcher.metadata
SET progress = CASE WHEN item.number > coalesce((metadata.progress ->> 'number')::bigint, 0)
                    THEN item.progress ELSE metadata.progress END,
    log_dropped = greatest(metadata.log_dropped, item.dropped),
    log_bytes = metadata.log_bytes + coalesce(used.bytes, 0)
FROM unnest($1::uuid[], $2::bigint[], $3::jsonb[], $4::integer[])
        AS item (run_id, number, progress, dropped)
LEFT JOIN used ON used.run_id = item.run_id
WHERE metadata.run_id = item.run_id
