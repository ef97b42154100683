-- name: lead
-- Take the tick's lock for this transaction and note who ticks; returns none if another has it.
-- The epoch rises when the holder changes. The row stays locked until the end of the
-- transaction, so should the advisory lock ever fail, a second leader waits here.
-- $1 lock key, $2 holder, $3 now.
INSERT INTO scheduler.leader AS known (name, epoch, holder, since)
SELECT 'tick', 1, $2, $3 WHERE pg_try_advisory_xact_lock($1)
ON CONFLICT (name) DO UPDATE
SET epoch = known.epoch + (known.holder <> excluded.holder)::integer,
    holder = excluded.holder,
    since = CASE WHEN known.holder <> excluded.holder THEN excluded.since ELSE known.since END
RETURNING epoch
