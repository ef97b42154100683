-- Cancels, activations, and manifests that go away.

ALTER TABLE dispatcher.work_queue
    -- Somebody wants this work to end early: whatever its run comes to, it is not tried again.
    ADD COLUMN cancel_requested_at timestamptz,
    ADD COLUMN cancel_reason text,
    ADD CHECK ((cancel_requested_at IS NULL) = (cancel_reason IS NULL));

CREATE INDEX work_queue_cancelling ON dispatcher.work_queue (cancel_requested_at)
    WHERE cancel_requested_at IS NOT NULL AND state = 'dispatched';
CREATE INDEX work_queue_manifest ON dispatcher.work_queue (manifest_id)
    WHERE manifest_id IS NOT NULL;

ALTER TABLE dispatcher.metadata
    -- Which dormant dependents the run has woken.
    ADD COLUMN activations jsonb,
    -- When its start became known, by our own wall clock. The other times of a run are schedule
    -- time, which a test may bend; how long a worker is waited for must not bend with them.
    ADD COLUMN start_heard_at timestamptz;

UPDATE dispatcher.metadata SET start_heard_at = started_at WHERE started_at IS NOT NULL;

ALTER TABLE dispatcher.metadata
    ADD CHECK ((started_at IS NULL) = (start_heard_at IS NULL));

CREATE INDEX metadata_activations ON dispatcher.metadata (work_id) WHERE activations IS NOT NULL;
CREATE INDEX metadata_manifest ON dispatcher.metadata (manifest_id, lease_id)
    WHERE manifest_id IS NOT NULL;
-- What refers to work, for whoever deletes it.
CREATE INDEX metadata_work ON dispatcher.metadata (work_id);
CREATE INDEX dead_letter_work ON dispatcher.dead_letter (work_id);
CREATE INDEX dead_letter_manifest ON dispatcher.dead_letter (manifest_id)
    WHERE manifest_id IS NOT NULL;

-- Manifests that are gone for good. Their work finds no home, however late it comes.
CREATE TABLE dispatcher.tombstone (
    manifest_id  uuid PRIMARY KEY,
    manifest     text NOT NULL,
    group_name   text NOT NULL,
    reason       text NOT NULL,
    pruned_at    timestamptz NOT NULL,
    -- When nothing of the manifest was left here.
    confirmed_at timestamptz
);

CREATE INDEX tombstone_unconfirmed ON dispatcher.tombstone (pruned_at) WHERE confirmed_at IS NULL;

-- Rows come and go all the time here, so a share of the table is no measure for when to tidy up.
-- Messages live for milliseconds: compressing them costs more than it saves.
ALTER TABLE dispatcher.outbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE dispatcher.outbox
    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
