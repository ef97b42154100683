-- Dead letters that people can work with, and indexes for what operators ask.

ALTER TABLE dispatcher.dead_letter
    ADD COLUMN manifest       text,
    -- Equal for failures that are the same one; the version of the code that failed, if known.
    ADD COLUMN fingerprint    text NOT NULL DEFAULT '',
    ADD COLUMN code_version   text NOT NULL DEFAULT '',
    -- All runs of the round as they ended: a letter may outlive the records of its runs.
    ADD COLUMN runs           jsonb NOT NULL DEFAULT '[]',
    -- How the input was edited for the retry; null where it was not.
    ADD COLUMN edit           jsonb,
    -- Somebody wants it retried, and it waits for the slot of its manifest.
    ADD COLUMN retry_asked_at timestamptz,
    ADD COLUMN retry_asked_by text,
    ADD COLUMN retry_input    jsonb,
    ADD CHECK (retry_asked_at IS NULL OR state = 'awaiting'),
    ADD CHECK ((retry_asked_at IS NULL) = (retry_asked_by IS NULL));

UPDATE dispatcher.dead_letter
SET manifest = work_queue.manifest,
    runs = coalesce((
        SELECT jsonb_agg(jsonb_build_object(
            'run', metadata.run_id, 'attempt', metadata.attempt, 'state', metadata.state,
            'worker', metadata.worker, 'host', metadata.host, 'created_at', metadata.created_at,
            'started_at', metadata.started_at, 'finished_at', metadata.finished_at,
            'failure', metadata.failure) ORDER BY metadata.created_at)
        FROM dispatcher.metadata
        WHERE metadata.work_id = dead_letter.work_id AND metadata.round = dead_letter.round), '[]')
FROM dispatcher.work_queue
WHERE work_queue.id = dead_letter.work_id;

CREATE INDEX dead_letter_created ON dispatcher.dead_letter (created_at, id);
CREATE INDEX dead_letter_awaiting ON dispatcher.dead_letter (created_at, id)
    WHERE state = 'awaiting';
CREATE INDEX dead_letter_job ON dispatcher.dead_letter (job, created_at, id);
CREATE INDEX dead_letter_group ON dispatcher.dead_letter (group_name, created_at, id);
CREATE INDEX dead_letter_manifest_name ON dispatcher.dead_letter (manifest, created_at, id);
CREATE INDEX dead_letter_fingerprint ON dispatcher.dead_letter (fingerprint, created_at, id);
CREATE INDEX dead_letter_resolved ON dispatcher.dead_letter (resolved_at)
    WHERE state <> 'awaiting';
CREATE INDEX dead_letter_asked ON dispatcher.dead_letter (manifest_id)
    WHERE retry_asked_at IS NOT NULL;

ALTER TABLE dispatcher.worker ADD COLUMN code_version text NOT NULL DEFAULT '';

CREATE INDEX work_queue_unsettled ON dispatcher.work_queue (queued_at, id)
    WHERE state <> 'settled';
CREATE INDEX work_queue_settled ON dispatcher.work_queue (settled_at, id)
    WHERE state = 'settled';
CREATE INDEX metadata_created ON dispatcher.metadata (created_at, run_id);
CREATE INDEX metadata_job ON dispatcher.metadata (job, created_at, run_id);
