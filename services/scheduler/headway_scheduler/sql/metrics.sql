-- name: gauges
-- Values of the gauges. Every part reads an index of just its rows, and counts up to a bound, so
-- that a backlog does not make scraping expensive. $1 now, $2 this scheduler, $3 bound of counts.
SELECT coalesce((SELECT (holder = $2)::integer FROM scheduler.leader WHERE name = 'tick'), 0)
           AS leader,
       (SELECT count(*) FROM (SELECT FROM scheduler.manifest WHERE wake_at <= $1
                              ORDER BY wake_at LIMIT $3) AS rows) AS due,
       greatest(0, coalesce((SELECT extract(epoch FROM $1 - min(wake_at))::float8
                             FROM scheduler.manifest WHERE wake_at IS NOT NULL), 0)) AS due_age,
       (SELECT count(*) FROM (SELECT FROM scheduler.work LIMIT $3) AS rows) AS unsettled,
       (SELECT count(*) FROM (SELECT FROM scheduler.enqueued WHERE state = 'waiting' LIMIT $3)
            AS rows) AS enqueued_waiting,
       (SELECT count(*) FROM (SELECT FROM scheduler.enqueued WHERE state = 'refused' LIMIT $3)
            AS rows) AS enqueued_refused,
       (SELECT count(*) FROM (SELECT FROM scheduler.outbox LIMIT $3) AS rows) AS outbox_rows,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
                 FROM scheduler.outbox ORDER BY id LIMIT 1), 0) AS outbox_age,
       (SELECT count(*) FROM (SELECT FROM scheduler.rejected LIMIT $3) AS rows) AS rejected,
       (SELECT count(*) FROM (SELECT FROM scheduler.notification WHERE state = 'pending' LIMIT $3)
            AS rows) AS notifications_pending,
       greatest(0, coalesce((SELECT extract(epoch FROM $1 - min(created_at))::float8
                             FROM scheduler.notification WHERE state = 'pending'), 0))
           AS notifications_age
