-- name: reporting_runs
-- Return reporting runs with their leases. $1 runs, $2 leases of the reports.
SELECT run.run_id AS run, coalesce(run_report.log_bytes, 0) AS log_bytes, lease.id AS lease,
       lease.token, lease.claimed_by, lease.ended_at
FROM dispatcher.run
JOIN dispatcher.lease ON lease.id = run.lease_id
LEFT JOIN dispatcher.run_report ON run_report.run_id = run.run_id
WHERE run.run_id = ANY($1::uuid[]) AND run.lease_id = ANY($2::uuid[])

-- name: keep
-- Store the latest report of each run, unless a newer one is stored, and log lines. $1 reports and
-- $2 lines with their runs and sizes, each as an array of objects.
WITH line AS (
    INSERT INTO dispatcher.run_log (run_id, number, at, level, message, fields, size)
    SELECT item.run, item.number, item.at, item.level, item.message, item.fields, item.size
    FROM jsonb_to_recordset($2) AS item (
        run uuid, number integer, at timestamptz, level text, message text, fields jsonb,
        size integer)
    ON CONFLICT DO NOTHING
    RETURNING run_id, size
), used AS (
    SELECT run_id, sum(size) AS bytes FROM line GROUP BY run_id
)
INSERT INTO dispatcher.run_report AS known (run_id, progress, log_dropped, log_bytes)
SELECT item.run,
       jsonb_build_object('number', item.number, 'at', item.at, 'percent', item.percent,
                          'message', item.message),
       item.dropped, coalesce(used.bytes, 0)
FROM jsonb_to_recordset($1) AS item (
    run uuid, number jsonb, at jsonb, percent jsonb, message jsonb, dropped integer)
LEFT JOIN used ON used.run_id = item.run
ORDER BY item.run
ON CONFLICT (run_id) DO UPDATE
SET progress = CASE WHEN (excluded.progress ->> 'number')::bigint
                         > (known.progress ->> 'number')::bigint
                    THEN excluded.progress ELSE known.progress END,
    log_dropped = greatest(known.log_dropped, excluded.log_dropped),
    log_bytes = known.log_bytes + excluded.log_bytes
