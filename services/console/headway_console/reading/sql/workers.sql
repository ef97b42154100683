-- name: page
-- Workers in the order of their names, with the runs that each has claimed. $1 heard since, to be
-- alive, $2 whether only those, $3 after this name, $4 how many.
SELECT worker.*, worker.last_heard_at > $1 AS alive,
       ARRAY(SELECT metadata.run_id
             FROM dispatcher.lease
             JOIN dispatcher.metadata ON metadata.lease_id = lease.id
             WHERE lease.ended_at IS NULL AND lease.claimed_by = worker.name
               AND lease.nonce = worker.nonce AND metadata.finished_at IS NULL
             ORDER BY metadata.created_at) AS runs
FROM dispatcher.worker
WHERE worker.name > $3
  AND (NOT $2::boolean OR worker.last_heard_at > $1)
ORDER BY worker.name
LIMIT $4

-- name: look
-- What changes whenever a worker is heard, comes or goes.
SELECT count(*) AS workers, max(last_heard_at) AS last_heard_at FROM dispatcher.worker
