-- name: latest
-- The latest runs that ended, the newest first: how late they began and how long they took.
-- $1 manifest, $2 job, $3 group (null where any will do), $4 created since, $5 created before,
-- $6 how many.
SELECT run_id, state, attempt, due_at, created_at, started_at, finished_at,
       date_part('epoch', finished_at - started_at) AS took_seconds,
       CASE WHEN attempt = 1
            THEN date_part('epoch', started_at - due_at) END AS late_seconds
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
-- How long runs took and how late they began, by the time in which they were made. Of a part of a
-- bucket (a tenth) no more than so many runs are looked at. $1 manifest, $2 job, $3 group (null
-- where any will do), $4 since, $5 until, $6 width of a part, $7 width of a bucket, $8 how many runs
-- of a part.
SELECT date_bin($7, part.at, $4) AS at, count(*) AS runs,
       count(*) FILTER (WHERE run.state = 'failed') AS failed,
       count(*) FILTER (WHERE run.state = 'cancelled') AS cancelled,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY run.took) AS took,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY run.late) AS late,
       count(*) FILTER (WHERE run.number = $8) = 0 AS in_full
FROM generate_series($4, $5::timestamptz - interval '1 microsecond', $6::interval) AS part (at)
CROSS JOIN LATERAL (
    SELECT few.*, row_number() OVER () AS number
    FROM (SELECT state, date_part('epoch', finished_at - started_at) AS took,
                 CASE WHEN attempt = 1 THEN date_part('epoch', started_at - due_at) END AS late
          FROM dispatcher.metadata
          WHERE finished_at IS NOT NULL
            AND ($1::uuid IS NULL OR manifest_id = $1)
            AND ($2::text IS NULL OR job = $2)
            AND ($3::text IS NULL OR group_name = $3)
            AND created_at >= part.at AND created_at < least(part.at + $6, $5)
          ORDER BY created_at, run_id
          LIMIT $8) AS few
) AS run
GROUP BY 1
ORDER BY 1
