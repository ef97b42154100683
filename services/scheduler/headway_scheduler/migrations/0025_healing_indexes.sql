-- What healing reads and repeats, and what clean-up deletes.

-- Serves both what was never asked about, by its age, and what is to be asked about again.
CREATE INDEX work_ask_at ON scheduler.work (ask_at, queued_at);

CREATE INDEX rejected_at ON scheduler.rejected (rejected_at);

-- Why a manifest goes away, to be told again as it was told first.
ALTER TABLE scheduler.manifest ADD COLUMN prune_reason text;
UPDATE scheduler.manifest
SET prune_reason = (
    SELECT history.data ->> 'reason' FROM scheduler.history
    WHERE history.type = 'headway.manifest.pruned.v1'
      AND history.subject = manifest.external_id
      AND history.data ->> 'id' = manifest.id::text
    ORDER BY history.id DESC LIMIT 1)
WHERE pruning_at IS NOT NULL;

-- The date of enqueued work by the clock of the schedule, to be told again as it was told first.
ALTER TABLE scheduler.enqueued ADD COLUMN queued_at timestamptz;
