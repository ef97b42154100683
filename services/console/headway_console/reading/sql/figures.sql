-- name: latest
-- The latest runs that ended, the newest first: how late they began and how long they took.
-- $1 manifest, $2 job, $3 group (null where any will do), $4 created since, $5 created before,
-- $6 how many.
SELECT run_id, state, attempt, due_at, created_at, started_at, finished_at,
       extract(epoch FROM finished_at - started_at)::double precision AS took_seconds,
       CASE WHEN attempt = 1
            THEN extract(epoch FROM started_at - due_at)::double precision END AS late_seconds
FROM dispatcher.metadata
WHERE finished_at IS NOT NULL
  AND ($1::uuid IS NULL OR manifest_id = $1)
  AND ($2::text IS NULL OR job = $2)
  AND ($3::text IS NULL OR group_name = $3)
  AND ($4::timestamptz IS NULL OR created_at >= $4)
  AND ($5::timestamptz IS NULL OR created_at < $5)
ORDER BY created_at DESC, run_id DESC
LIMIT $6

-- name: buckets
-- How long runs took and how late they began, by the time in which they were made; of so many of
-- the newest. $1 manifest, $2 job, $3 group (null where any will do), $4 since, $5 until,
-- $6 width of a bucket, $7 how many runs at most.
SELECT date_bin($6, run.created_at, $4) AS at, count(*) AS runs,
       count(*) FILTER (WHERE run.state = 'failed') AS failed,
       count(*) FILTER (WHERE run.state = 'cancelled') AS cancelled,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY run.took) AS took,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY run.late) AS late
FROM (
    SELECT created_at, state,
           extract(epoch FROM finished_at - started_at)::double precision AS took,
           CASE WHEN attempt = 1
                THEN extract(epoch FROM started_at - due_at)::double precision END AS late
    FROM dispatcher.metadata
    WHERE finished_at IS NOT NULL
      AND ($1::uuid IS NULL OR manifest_id = $1)
      AND ($2::text IS NULL OR job = $2)
      AND ($3::text IS NULL OR group_name = $3)
      AND created_at >= $4 AND created_at < $5
    ORDER BY created_at DESC, run_id DESC
    LIMIT $7
) AS run
GROUP BY 1
ORDER BY 1
