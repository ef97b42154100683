-- name: lead
-- Take the lock of the tick for this transaction and note the leader; no rows if another scheduler
-- has the lock. The epoch rises when the holder changes. The row stays locked until the end of the
-- transaction, so if the advisory lock ever fails, a second leader waits here. The leader also gets
-- the manifests locked, in a fixed order and without pruned ones: a first row
-- without an id, then one for each. $1 lock key, $2 holder, $3 now, $4 manifests.
WITH led AS (
    INSERT INTO scheduler.leader AS known (name, epoch, holder, since, ticked_at)
    SELECT 'tick', 1, $2, $3, $3 WHERE pg_try_advisory_xact_lock($1)
    ON CONFLICT (name) DO UPDATE
    SET epoch = known.epoch + (known.holder <> excluded.holder)::integer,
        holder = excluded.holder, ticked_at = excluded.ticked_at,
        since = CASE WHEN known.holder <> excluded.holder THEN excluded.since ELSE known.since END
    RETURNING epoch
), locked AS MATERIALIZED (
    SELECT id FROM scheduler.manifest
    WHERE EXISTS (SELECT FROM led) AND id = ANY($4::uuid[]) AND pruning_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
)
SELECT NULL AS id FROM led
UNION ALL
SELECT id FROM locked
