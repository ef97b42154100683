-- name: try_lead
-- Take the tick's lock for this transaction, or learn that another has it. $1 lock key.
SELECT pg_try_advisory_xact_lock($1)

-- name: take_office
-- Note who ticks; the epoch rises when that changes. The row stays locked until the end of the
-- transaction, so should the advisory lock ever fail, a second leader waits here.
-- $1 holder, $2 now.
INSERT INTO scheduler.leader AS known (name, epoch, holder, since)
VALUES ('tick', 1, $1, $2)
ON CONFLICT (name) DO UPDATE
SET epoch = known.epoch + (known.holder <> excluded.holder)::integer,
    holder = excluded.holder,
    since = CASE WHEN known.holder <> excluded.holder THEN excluded.since ELSE known.since END
RETURNING epoch
