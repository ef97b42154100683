-- Limits of jobs, concurrency keys, rates, expiry, switches of manifests, leases of several runs.

ALTER TABLE dispatcher.group_limit ADD COLUMN rate jsonb;

CREATE TABLE dispatcher.job_limit (
    name            text PRIMARY KEY,
    max_active      integer CHECK (max_active >= 0),
    rate            jsonb,
    -- Whether its runs count against the cap over all groups.
    counts_globally boolean NOT NULL DEFAULT true,
    -- How many runs one lease may have.
    batch           integer NOT NULL DEFAULT 1 CHECK (batch >= 1),
    version         bigint NOT NULL
);

-- Whether the work of manifests may run; those that nobody told of may.
CREATE TABLE dispatcher.manifest_switch (
    manifest_id uuid PRIMARY KEY,
    enabled     boolean NOT NULL,
    version     bigint NOT NULL
);

-- What lately began under a rate. Written by the gate alone, and apart from the limits, so that
-- it never waits for whoever changes those.
CREATE TABLE dispatcher.rate_use (
    kind  text NOT NULL CHECK (kind IN ('group', 'job')),
    name  text NOT NULL,
    begun jsonb NOT NULL,
    -- Until when nothing more may begin, if that is so.
    frees_at timestamptz,
    PRIMARY KEY (kind, name)
);

ALTER TABLE dispatcher.work_queue
    ADD COLUMN start_by timestamptz,
    ADD COLUMN concurrency_key text,
    ADD COLUMN concurrency_limit integer NOT NULL DEFAULT 1 CHECK (concurrency_limit >= 1),
    -- Somebody asked for it, so a disabled manifest does not hold it.
    ADD COLUMN explicit boolean NOT NULL DEFAULT false,
    -- It shares its lease with no other: it may have taken a worker down.
    ADD COLUMN alone boolean NOT NULL DEFAULT false,
    -- What keeps work that waits from being a candidate at all; none for what is ready. The gate
    -- reads only what is ready, so nothing else is ever in its way.
    ADD COLUMN held_by text CHECK (held_by IN ('not_before', 'key', 'manifest_disabled'));

UPDATE dispatcher.work_queue SET held_by = 'not_before' WHERE state IN ('queued', 'waiting');

DROP INDEX dispatcher.work_queue_order;
DROP INDEX dispatcher.work_queue_not_before;
-- Lane by lane, in the order of the gate: a lane without room is passed over in one step.
CREATE INDEX work_queue_ready ON dispatcher.work_queue (group_name, job, rank, id)
    WHERE state IN ('queued', 'waiting') AND held_by IS NULL;
CREATE INDEX work_queue_not_before ON dispatcher.work_queue (not_before)
    WHERE state IN ('queued', 'waiting') AND held_by = 'not_before';
CREATE INDEX work_queue_start_by ON dispatcher.work_queue (start_by)
    WHERE state IN ('queued', 'waiting') AND start_by IS NOT NULL AND attempts = 0;
CREATE INDEX work_queue_key_held ON dispatcher.work_queue (concurrency_key, rank)
    WHERE state IN ('queued', 'waiting') AND held_by = 'key';
CREATE INDEX work_queue_key_ready ON dispatcher.work_queue (concurrency_key)
    WHERE state IN ('queued', 'waiting') AND held_by IS NULL AND concurrency_key IS NOT NULL;

-- The lanes (a job in a group) that have ready work: a step of the index finds the next one, so
-- the work itself is not read through, however much of it waits.
CREATE VIEW dispatcher.ready_lane AS
WITH RECURSIVE lane AS (
    (SELECT group_name, job FROM dispatcher.work_queue
     WHERE state IN ('queued', 'waiting') AND held_by IS NULL
     ORDER BY group_name, job
     LIMIT 1)
    UNION ALL
    SELECT next.group_name, next.job
    FROM lane
    CROSS JOIN LATERAL (
        SELECT work_queue.group_name, work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.state IN ('queued', 'waiting') AND work_queue.held_by IS NULL
          AND (work_queue.group_name, work_queue.job) > (lane.group_name, lane.job)
        ORDER BY work_queue.group_name, work_queue.job
        LIMIT 1
    ) AS next
)
SELECT group_name, job FROM lane;

-- Rows come and go all the time here, so a share of the table is no measure for when to tidy up.
ALTER TABLE dispatcher.work_queue
    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

ALTER TABLE dispatcher.metadata
    ADD COLUMN concurrency_key text,
    -- A run is written together with its lease, while the row of its work is locked, and deleted
    -- before either. The check of every run against both, the dearest part of a pass of the gate,
    -- proves nothing new.
    DROP CONSTRAINT IF EXISTS metadata_work_id_fkey,
    DROP CONSTRAINT IF EXISTS metadata_lease_id_fkey;
CREATE INDEX metadata_key_active ON dispatcher.metadata (concurrency_key)
    WHERE state IN ('pending', 'in_progress') AND concurrency_key IS NOT NULL;

-- Keys that may have fallen free, or that somebody new waits for; the gate looks at them and
-- strikes them off. Not unique, so that nobody who notes one waits for anybody else.
CREATE TABLE dispatcher.key_changed (key text NOT NULL);
ALTER TABLE dispatcher.key_changed
    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Why the ready work of a lane waits; lanes that are not here are open.
CREATE TABLE dispatcher.closed_lane (
    group_name text NOT NULL,
    job        text NOT NULL,
    reason     text NOT NULL,
    since      timestamptz NOT NULL,
    PRIMARY KEY (group_name, job)
);

-- Why work waits, in one word.
CREATE VIEW dispatcher.waiting AS
SELECT work_queue.id, work_queue.group_name, work_queue.job, work_queue.manifest,
       coalesce(CASE WHEN NOT group_limit.enabled THEN 'group_disabled' END,
                CASE WHEN work_queue.held_by = 'not_before' AND work_queue.state = 'waiting'
                     THEN work_queue.wait_reason END,
                work_queue.held_by, closed_lane.reason, 'awaiting_gate') AS reason
FROM dispatcher.work_queue
JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
LEFT JOIN dispatcher.closed_lane
    ON closed_lane.group_name = work_queue.group_name AND closed_lane.job = work_queue.job
WHERE work_queue.state IN ('queued', 'waiting');

-- Whatever statement it is that makes work wait again or ends it, two things must not be
-- forgotten, or work would wait for ever: what waits again is looked at by the gate when its
-- time has come, and whoever waits for its key is looked at too.
CREATE FUNCTION dispatcher.work_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state IN ('queued', 'waiting') THEN
        NEW.held_by := 'not_before';
    END IF;
    IF OLD.state <> 'settled' AND NEW.concurrency_key IS NOT NULL THEN
        INSERT INTO dispatcher.key_changed (key) VALUES (NEW.concurrency_key);
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER work_moves BEFORE UPDATE OF state ON dispatcher.work_queue
    FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (NEW.state IN ('queued', 'waiting')
               OR (NEW.state = 'settled' AND NEW.concurrency_key IS NOT NULL)))
    EXECUTE FUNCTION dispatcher.work_moves();
