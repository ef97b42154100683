-- The dispatcher's tables. Only the dispatcher writes them.

-- Limits of groups, as the scheduler announces them. A group without a row has no limits.
CREATE TABLE dispatcher.group_limit (
    name       text PRIMARY KEY,
    max_active integer CHECK (max_active >= 0),
    priority   smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 31),
    enabled    boolean NOT NULL DEFAULT true,
    version    bigint NOT NULL DEFAULT 0,
    rate       jsonb
);

-- Deleted groups with the version of the deletion: an older announcement that arrives later does
-- not restore the group.
CREATE TABLE dispatcher.deleted_group (
    name       text PRIMARY KEY,
    version    bigint NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Declared jobs and their limits. The intake adds every job of which it receives work.
CREATE TABLE dispatcher.job_limit (
    name            text PRIMARY KEY,
    max_active      integer CHECK (max_active >= 0),
    rate            jsonb,
    -- Whether runs of the job count against the global limit.
    counts_globally boolean NOT NULL DEFAULT true,
    -- Most runs in one lease; null to decide by the duration of recent runs.
    batch           integer CHECK (batch >= 1),
    version         bigint NOT NULL,
    -- No application declares the job; its consumer is deleted after its last work.
    retired         boolean NOT NULL DEFAULT false,
    -- The broker's reason for refusing to create the consumer.
    consumer_error  text
);

-- Whether work of a manifest may run. A manifest without a row is enabled.
CREATE TABLE dispatcher.manifest_switch (
    manifest_id uuid PRIMARY KEY,
    enabled     boolean NOT NULL,
    version     bigint NOT NULL
);

-- Recent starts under a rate limit. Only the gate writes here. The table is separate from the
-- limits, so the gate never waits for a transaction that changes a limit.
CREATE TABLE dispatcher.rate_use (
    kind     text NOT NULL CHECK (kind IN ('group', 'job')),
    name     text NOT NULL,
    begun    jsonb NOT NULL,
    -- When the next start is allowed; null if one is allowed now.
    frees_at timestamptz,
    PRIMARY KEY (kind, name)
);

-- How long a run of a job takes. Only the pass that measures it writes here.
CREATE TABLE dispatcher.job_duration (
    job         text PRIMARY KEY,
    -- The 90th percentile of recent runs or their mean, whichever is longer.
    seconds     double precision NOT NULL,
    measured_at timestamptz NOT NULL
);

CREATE TABLE dispatcher.work_queue (
    id                   uuid PRIMARY KEY,
    round                integer NOT NULL,
    manifest_id          uuid,
    manifest             text,
    slot                 integer NOT NULL,
    group_name           text NOT NULL,
    -- Empty if the work was cancelled before it arrived.
    job                  text NOT NULL,
    input                jsonb,
    input_schema         text,
    cause                text NOT NULL,
    due_at               timestamptz,
    queued_at            timestamptz NOT NULL,
    priority             smallint NOT NULL CHECK (priority BETWEEN 0 AND 31),
    -- `queued_at` minus one step for each priority: age and priority in one indexed column.
    rank                 timestamptz NOT NULL,
    not_before           timestamptz NOT NULL,
    start_by             timestamptz,
    -- See `WorkTerms` in headway_contract.work; most defaults are left out. The gate sorts or filters
    -- by `priority`, `start_by` and `concurrency_key`, so those are columns.
    terms                jsonb NOT NULL,
    concurrency_key      text,
    concurrency_limit    integer NOT NULL
                         GENERATED ALWAYS AS (coalesce((terms ->> 'concurrency_limit')::integer, 1))
                         STORED,
    -- A person requested it, so a disabled manifest does not hold it.
    explicit             boolean NOT NULL DEFAULT false,
    -- It shares its lease with no other work, because it may have crashed a worker.
    exclusive_lease      boolean NOT NULL DEFAULT false,
    state                text NOT NULL
                         CHECK (state IN ('queued', 'dispatched', 'waiting', 'settled')),
    wait_reason          text,
    -- Why waiting work is not ready; null if it is. The gate reads only ready work.
    hold_reason          text CHECK (hold_reason IN ('not_before', 'key', 'manifest_disabled')),
    runs                 integer NOT NULL DEFAULT 0,
    attempts             integer NOT NULL DEFAULT 0,
    -- The last run, and its lease.
    run_id               uuid,
    lease_id             uuid,
    -- A cancel was requested: the work is not retried, whatever its run ends with.
    cancel_requested_at  timestamptz,
    cancel_reason        text,
    outcome              text,
    settled_at           timestamptz,
    traceparent          text,
    received_at          timestamptz NOT NULL,
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CHECK ((state IN ('queued', 'waiting')) = (wait_reason IS NOT NULL)),
    CHECK (state <> 'dispatched' OR (run_id IS NOT NULL AND lease_id IS NOT NULL)),
    CHECK ((cancel_requested_at IS NULL) = (cancel_reason IS NULL)),
    CONSTRAINT work_queue_rounds_and_slots CHECK (round >= 1 AND slot >= 0),
    CONSTRAINT work_queue_attempts_are_runs CHECK (attempts BETWEEN 0 AND runs),
    CONSTRAINT work_queue_waiting_has_run CHECK (state <> 'waiting' OR runs > 0),
    CONSTRAINT work_queue_known_outcome
        CHECK (outcome IN ('completed', 'cancelled', 'dead_lettered', 'coalesced', 'expired'))
)
-- Rows are updated all the time, so a share of the table is no measure for the next vacuum. A row is
-- updated twice, and if the new version is on the same page, only the changes are logged: a third of
-- each page is for new rows.
WITH (fillfactor = 35, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- One unsettled piece of work for each slot of a manifest.
CREATE UNIQUE INDEX work_queue_one_unsettled ON dispatcher.work_queue (manifest_id, slot)
    WHERE state <> 'settled' AND manifest_id IS NOT NULL;
CREATE INDEX work_queue_manifest ON dispatcher.work_queue (manifest_id)
    WHERE manifest_id IS NOT NULL;
-- Ready work by lane, in the order of the gate.
CREATE INDEX work_queue_ready ON dispatcher.work_queue (group_name, job, rank, id)
    WHERE state IN ('queued', 'waiting') AND hold_reason IS NULL;
CREATE INDEX work_queue_not_before ON dispatcher.work_queue (not_before)
    WHERE state IN ('queued', 'waiting') AND hold_reason = 'not_before';
CREATE INDEX work_queue_start_by ON dispatcher.work_queue (start_by)
    WHERE state IN ('queued', 'waiting') AND start_by IS NOT NULL AND attempts = 0;
-- Work that waits for a key, by lane. An index by rank beside it would tempt a plan that is made
-- while little work waits to read all of it later.
CREATE INDEX work_queue_key_lanes ON dispatcher.work_queue (concurrency_key, group_name, job, rank)
    WHERE state IN ('queued', 'waiting') AND hold_reason = 'key';
-- Ready work with a key, by lane.
CREATE INDEX work_queue_key_ready ON dispatcher.work_queue (concurrency_key, group_name, job, rank)
    WHERE state IN ('queued', 'waiting') AND hold_reason IS NULL AND concurrency_key IS NOT NULL;
-- Work with a run that has not ended, by lease.
CREATE INDEX work_queue_dispatched ON dispatcher.work_queue (lease_id) WHERE state = 'dispatched';
CREATE INDEX work_queue_key_active ON dispatcher.work_queue (concurrency_key)
    WHERE state = 'dispatched' AND concurrency_key IS NOT NULL;
CREATE INDEX work_queue_cancelling ON dispatcher.work_queue (cancel_requested_at)
    WHERE cancel_requested_at IS NOT NULL AND state = 'dispatched';
-- Waiting work by age, for lists. Work that is dispatched has no entry here: it would be written anew
-- with each new version of the row. The condition means the same as the states, but no plan of the
-- gate, which names states, can take this index instead of one that has only ready work.
CREATE INDEX work_queue_waiting ON dispatcher.work_queue (queued_at, id)
    WHERE wait_reason IS NOT NULL;
CREATE INDEX work_queue_settled ON dispatcher.work_queue (settled_at)
    WHERE state = 'settled';

-- Work that has not ended, found by the indexes of waiting and of dispatched work.
CREATE VIEW dispatcher.unsettled AS
SELECT * FROM dispatcher.work_queue WHERE wait_reason IS NOT NULL
UNION ALL
SELECT * FROM dispatcher.work_queue WHERE state = 'dispatched';

-- Keys that may have become free, or that new work waits for. The gate reads and deletes them.
-- Not unique, so that writers of the same key do not wait for each other.
CREATE TABLE dispatcher.key_changed (key text NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Every statement that makes work wait again or settles it must hold it until the gate checks its
-- time, and must let the gate check its key. Otherwise other work would wait forever.
CREATE FUNCTION dispatcher.work_state_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state IN ('queued', 'waiting') THEN
        NEW.hold_reason := 'not_before';
    END IF;
    IF OLD.state <> 'settled' AND NEW.concurrency_key IS NOT NULL THEN
        INSERT INTO dispatcher.key_changed (key) VALUES (NEW.concurrency_key);
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER work_state_changed BEFORE UPDATE OF state ON dispatcher.work_queue
    FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (NEW.state IN ('queued', 'waiting')
               OR (NEW.state = 'settled' AND NEW.concurrency_key IS NOT NULL)))
    EXECUTE FUNCTION dispatcher.work_state_changed();

-- Work that is held again without a run lets the next work of its lane have the key, and work with
-- a new rank may be that next work. The gate checks the key, whichever statement did it.
CREATE FUNCTION dispatcher.work_order_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dispatcher.key_changed (key) VALUES (NEW.concurrency_key);
    RETURN NULL;
END
$$;

CREATE TRIGGER work_order_changed AFTER UPDATE OF hold_reason, rank ON dispatcher.work_queue
    FOR EACH ROW
    WHEN (NEW.concurrency_key IS NOT NULL AND NEW.state IN ('queued', 'waiting')
          AND ((OLD.hold_reason IS NULL AND NEW.hold_reason IN ('not_before', 'manifest_disabled'))
               OR (NEW.hold_reason = 'key' AND NEW.rank <> OLD.rank)))
    EXECUTE FUNCTION dispatcher.work_order_changed();

-- The first work that waits for a key in each lane. Each step of the recursion is one index lookup.
CREATE FUNCTION dispatcher.first_for_key(wanted text)
    RETURNS TABLE (group_name text, job text, rank timestamptz, concurrency_limit integer)
    LANGUAGE sql STABLE AS $$
    WITH RECURSIVE head AS (
        (SELECT work_queue.group_name, work_queue.job, work_queue.rank,
                work_queue.concurrency_limit
         FROM dispatcher.work_queue
         WHERE work_queue.concurrency_key = wanted
           AND work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason = 'key'
         ORDER BY work_queue.group_name, work_queue.job, work_queue.rank
         LIMIT 1)
        UNION ALL
        SELECT next.*
        FROM head
        CROSS JOIN LATERAL (
            SELECT work_queue.group_name, work_queue.job, work_queue.rank,
                   work_queue.concurrency_limit
            FROM dispatcher.work_queue
            WHERE work_queue.concurrency_key = wanted
              AND work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason = 'key'
              AND (work_queue.group_name, work_queue.job) > (head.group_name, head.job)
            ORDER BY work_queue.group_name, work_queue.job, work_queue.rank
            LIMIT 1
        ) AS next
    )
    SELECT head.group_name, head.job, head.rank, head.concurrency_limit FROM head
$$;

-- The lanes (a job in a group) that have ready work. Each step is one index lookup, so the cost
-- does not grow with the backlog.
CREATE VIEW dispatcher.ready_lane AS
WITH RECURSIVE lane AS (
    (SELECT group_name, job FROM dispatcher.work_queue
     WHERE state IN ('queued', 'waiting') AND hold_reason IS NULL
     ORDER BY group_name, job
     LIMIT 1)
    UNION ALL
    SELECT next.group_name, next.job
    FROM lane
    CROSS JOIN LATERAL (
        SELECT work_queue.group_name, work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason IS NULL
          AND (work_queue.group_name, work_queue.job) > (lane.group_name, lane.job)
        ORDER BY work_queue.group_name, work_queue.job
        LIMIT 1
    ) AS next
)
SELECT group_name, job FROM lane;

-- Why the ready work of a lane waits. A lane without a row is open.
CREATE TABLE dispatcher.closed_lane (
    group_name text NOT NULL,
    job        text NOT NULL,
    reason     text NOT NULL,
    since      timestamptz NOT NULL,
    PRIMARY KEY (group_name, job)
);

-- Why each piece of work waits, in one word.
CREATE VIEW dispatcher.waiting AS
SELECT work_queue.id, work_queue.group_name, work_queue.job, work_queue.manifest,
       coalesce(CASE WHEN NOT group_limit.enabled THEN 'group_disabled' END,
                CASE WHEN work_queue.hold_reason = 'not_before' AND work_queue.state = 'waiting'
                     THEN work_queue.wait_reason END,
                work_queue.hold_reason, closed_lane.reason, 'awaiting_gate') AS reason
FROM dispatcher.work_queue
LEFT JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
LEFT JOIN dispatcher.closed_lane
    ON closed_lane.group_name = work_queue.group_name AND closed_lane.job = work_queue.job
WHERE work_queue.state IN ('queued', 'waiting');

CREATE TABLE dispatcher.lease (
    id            uuid PRIMARY KEY,
    token         text NOT NULL,
    job           text NOT NULL,
    -- The groups of its runs. The lease counts once against the limit of each.
    groups        text[] NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL,
    -- The same moment in schedule time, which a test may change: when its runs were created.
    ordered_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_by    text,
    nonce         text,
    host          text,
    -- Code version of the process that claimed it, if that process reported one.
    code_version  text,
    last_heard_at timestamptz,
    -- When a heartbeat last named the lease while its claim was unknown here. The claim may be lost
    -- or not projected yet, but a worker has the lease, so its order is not republished.
    listed_at     timestamptz,
    -- The last projected event of the lease, and events whose predecessor has not arrived.
    sequence      bigint NOT NULL DEFAULT 0,
    loose_links   jsonb NOT NULL DEFAULT '{}',
    ended_at      timestamptz,
    -- A problem with the claimant's messages, for the replies to its heartbeats.
    warning       text,
    warned_at     timestamptz,
    CHECK ((claimed_by IS NULL) = (nonce IS NULL)),
    CHECK ((claimed_by IS NULL) = (last_heard_at IS NULL)),
    CONSTRAINT lease_warning_has_a_time CHECK ((warning IS NULL) = (warned_at IS NULL))
);

CREATE INDEX lease_live ON dispatcher.lease (last_heard_at, created_at) WHERE ended_at IS NULL;
CREATE INDEX lease_warned ON dispatcher.lease (claimed_by, nonce) WHERE warning IS NOT NULL;

-- Seconds from the start of a run until it must have ended: its timeout, its grace, and time in which
-- its worker may report the end itself.
CREATE FUNCTION dispatcher.max_run_seconds(terms jsonb) RETURNS double precision
    LANGUAGE sql IMMUTABLE AS $$
    SELECT (terms ->> 'timeout_seconds')::double precision
         + (terms ->> 'cancel_grace_seconds')::double precision + 10
$$;

-- The trace id of the first context of a stored `traceparent`.
CREATE FUNCTION dispatcher.trace_id(traceparent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT nullif(split_part(traceparent, '-', 2), '')
$$;

-- One row for each run of which an event was accepted; a short run is written once, when it ends.
-- The view `run` also has the runs that only were ordered. Rows are inserted under the lock of their
-- lease. There are no foreign keys: their checks would cost more than the row.
CREATE TABLE dispatcher.metadata (
    run_id             uuid PRIMARY KEY,
    work_id            uuid NOT NULL,
    lease_id           uuid NOT NULL,
    manifest_id        uuid,
    group_name         text NOT NULL,
    job                text NOT NULL,
    concurrency_key    text,
    round              integer NOT NULL,
    attempt            integer NOT NULL,
    state              text NOT NULL
                       CHECK (state IN ('pending', 'in_progress', 'completed', 'failed',
                                        'cancelled')),
    worker             text,
    host               text,
    due_at             timestamptz,
    created_at         timestamptz NOT NULL,
    -- The worker's times, clamped to the times that the dispatcher knows.
    started_at         timestamptz,
    finished_at        timestamptz,
    -- The same times by the worker's clock.
    worker_started_at  timestamptz,
    worker_finished_at timestamptz,
    -- When the start was received, in real time. The other times are schedule time, which a test
    -- may change; liveness must not depend on it.
    start_heard_at     timestamptz,
    -- Time from the start until the run must have ended, grace included.
    max_run_seconds    double precision NOT NULL,
    failure            jsonb,
    output             jsonb,
    cancel_reason      text,
    -- Dependents that the run activated.
    activations        jsonb,
    -- How often its lost order was republished: its body may have run before, unseen.
    reissued           integer NOT NULL DEFAULT 0,
    -- How often a process that does not hold the lease reported a start of the body.
    begun_elsewhere    integer NOT NULL DEFAULT 0,
    trace_id           text,
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (state <> 'in_progress' OR started_at IS NOT NULL),
    CHECK ((state = 'failed') = (failure IS NOT NULL)),
    CHECK ((started_at IS NULL) = (start_heard_at IS NULL)),
    CONSTRAINT metadata_attempts_from_one CHECK (attempt >= 1),
    CONSTRAINT metadata_pending_has_not_begun CHECK (state <> 'pending' OR started_at IS NULL),
    CONSTRAINT metadata_output_of_completed CHECK (output IS NULL OR state = 'completed'),
    CONSTRAINT metadata_reason_of_cancelled
        CHECK ((state = 'cancelled') = (cancel_reason IS NOT NULL)),
    CONSTRAINT metadata_times_in_order
        CHECK (started_at >= created_at AND finished_at >= coalesce(started_at, created_at))
);

-- One live run for each work; it also finds all live runs, which are never many.
CREATE UNIQUE INDEX metadata_one_live ON dispatcher.metadata (work_id)
    WHERE state IN ('pending', 'in_progress');
CREATE INDEX metadata_lease ON dispatcher.metadata (lease_id);
CREATE INDEX metadata_work ON dispatcher.metadata (work_id);
-- Lists of runs, which sort the runs of one time by their ids: an id in each entry would cost more.
CREATE INDEX metadata_created ON dispatcher.metadata (created_at);
CREATE INDEX metadata_manifest ON dispatcher.metadata (manifest_id, created_at)
    WHERE manifest_id IS NOT NULL;
-- Only ended runs, so a run writes one entry and only when it ends.
CREATE INDEX metadata_job ON dispatcher.metadata (job, created_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX metadata_group ON dispatcher.metadata (group_name, created_at)
    WHERE finished_at IS NOT NULL;
-- Counts of ended runs, without reading the rows.
CREATE INDEX metadata_finished ON dispatcher.metadata (finished_at, state)
    WHERE finished_at IS NOT NULL;
-- A run that completes writes no entry here.
CREATE INDEX metadata_unsuccessful ON dispatcher.metadata (state, created_at, run_id)
    WHERE state IN ('failed', 'cancelled');
CREATE INDEX metadata_unsuccessful_job ON dispatcher.metadata (job, state, created_at, run_id)
    WHERE state IN ('failed', 'cancelled');
CREATE INDEX metadata_unsuccessful_group
    ON dispatcher.metadata (group_name, state, created_at, run_id)
    WHERE state IN ('failed', 'cancelled');

-- What runs report about themselves, unfenced: a row for each run that did.
CREATE TABLE dispatcher.run_report (
    run_id      uuid PRIMARY KEY,
    -- The latest report: its number, time, percentage and message.
    progress    jsonb,
    log_bytes   integer NOT NULL DEFAULT 0 CHECK (log_bytes >= 0),
    log_dropped integer NOT NULL DEFAULT 0 CHECK (log_dropped >= 0)
);

-- All runs: those in `metadata`, and those that were ordered and of which nothing was heard yet.
-- These follow from their work and their lease.
CREATE VIEW dispatcher.run AS
SELECT * FROM dispatcher.metadata
UNION ALL
SELECT work.run_id, work.id, work.lease_id, work.manifest_id, work.group_name, work.job,
       work.concurrency_key, work.round, work.attempts + 1, 'pending', NULL, NULL, work.due_at,
       lease.ordered_at, NULL, NULL, NULL, NULL, NULL, dispatcher.max_run_seconds(work.terms),
       NULL, NULL, NULL, NULL, 0, 0, dispatcher.trace_id(work.traceparent)
FROM dispatcher.work_queue AS work
JOIN dispatcher.lease ON lease.id = work.lease_id
WHERE work.state = 'dispatched'
  AND NOT EXISTS (SELECT FROM dispatcher.metadata WHERE metadata.run_id = work.run_id);

-- Log lines of runs. The worker numbers them, so a second delivery changes nothing.
CREATE TABLE dispatcher.run_log (
    run_id  uuid NOT NULL,
    number  integer NOT NULL CHECK (number >= 1),
    at      timestamptz NOT NULL,
    level   text NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error', 'critical')),
    message text NOT NULL,
    fields  jsonb NOT NULL,
    size    integer NOT NULL,
    PRIMARY KEY (run_id, number)
);

-- The reports and log lines of runs are deleted with the runs.
CREATE FUNCTION dispatcher.runs_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM dispatcher.run_report WHERE run_id IN (SELECT run_id FROM gone);
    DELETE FROM dispatcher.run_log WHERE run_id IN (SELECT run_id FROM gone);
    RETURN NULL;
END
$$;

CREATE TRIGGER runs_deleted AFTER DELETE ON dispatcher.metadata
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcher.runs_deleted();

CREATE TABLE dispatcher.dead_letter (
    id                 uuid PRIMARY KEY,
    work_id            uuid NOT NULL REFERENCES dispatcher.work_queue (id),
    round              integer NOT NULL,
    manifest_id        uuid,
    manifest           text,
    group_name         text NOT NULL,
    job                text NOT NULL,
    input              jsonb,
    reason             text NOT NULL,
    failure            jsonb NOT NULL,
    -- Equal for repetitions of a failure.
    fingerprint        text NOT NULL DEFAULT '',
    -- Version of the code that failed; empty if unknown.
    code_version       text NOT NULL DEFAULT '',
    attempts           integer NOT NULL,
    -- All runs of the round, because the letter may outlive their rows.
    runs               jsonb NOT NULL DEFAULT '[]',
    state              text NOT NULL CHECK (state IN ('awaiting', 'retried', 'acknowledged')),
    created_at         timestamptz NOT NULL,
    resolved_at        timestamptz,
    actor              text,
    note               text,
    -- Changes to the input for the retry; null if it was not edited.
    edit               jsonb,
    -- A person requested a retry, and it waits for the slot of its manifest.
    retry_requested_at timestamptz,
    retry_requested_by text,
    retry_input        jsonb,
    -- The concurrency key of the edited input as one element; null to keep the key.
    retry_key          text[],
    CHECK ((state = 'awaiting') = (resolved_at IS NULL)),
    CHECK (retry_requested_at IS NULL OR state = 'awaiting'),
    CHECK ((retry_requested_at IS NULL) = (retry_requested_by IS NULL))
);

CREATE UNIQUE INDEX dead_letter_one_awaiting ON dispatcher.dead_letter (work_id)
    WHERE state = 'awaiting';
CREATE INDEX dead_letter_work ON dispatcher.dead_letter (work_id);
CREATE INDEX dead_letter_manifest ON dispatcher.dead_letter (manifest_id)
    WHERE manifest_id IS NOT NULL;
CREATE INDEX dead_letter_retry_requested ON dispatcher.dead_letter (manifest_id)
    WHERE retry_requested_at IS NOT NULL;
CREATE INDEX dead_letter_resolved ON dispatcher.dead_letter (resolved_at)
    WHERE state <> 'awaiting';
-- Lists of dead letters.
CREATE INDEX dead_letter_created ON dispatcher.dead_letter (created_at, id);
CREATE INDEX dead_letter_awaiting ON dispatcher.dead_letter (created_at, id)
    WHERE state = 'awaiting';
CREATE INDEX dead_letter_job ON dispatcher.dead_letter (job, created_at, id);
CREATE INDEX dead_letter_group ON dispatcher.dead_letter (group_name, created_at, id);
CREATE INDEX dead_letter_manifest_name ON dispatcher.dead_letter (manifest, created_at, id);
CREATE INDEX dead_letter_fingerprint ON dispatcher.dead_letter (fingerprint, created_at, id);

-- Gradual retries of all dead letters of one failure. The row has the whole state, so any
-- dispatcher continues it after a restart.
CREATE TABLE dispatcher.canary (
    id          uuid PRIMARY KEY,
    -- With a code version (`3f9a2c1b7d20@1.4.2`), or without one for any version.
    fingerprint text NOT NULL,
    actor       text NOT NULL,
    began_at    timestamptz NOT NULL,
    ended_at    timestamptz,
    -- Open letters of the failure when it began.
    awaiting    bigint NOT NULL,
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'finished')),
    reason      text NOT NULL,
    step        integer NOT NULL DEFAULT 0,
    -- The size of each step, and the number of its letters by fate.
    steps       jsonb NOT NULL,
    -- Letters of the current step whose work has not settled.
    under_way   uuid[] NOT NULL DEFAULT '{}',
    -- Whether letters may be left, and the last one that was retried.
    more        boolean NOT NULL DEFAULT true,
    after_at    timestamptz,
    after_id    uuid,
    CHECK ((state = 'running') = (ended_at IS NULL))
);

CREATE UNIQUE INDEX canary_running ON dispatcher.canary (fingerprint) WHERE state = 'running';
CREATE INDEX canary_fingerprint ON dispatcher.canary (fingerprint, began_at);

CREATE TABLE dispatcher.worker (
    name           text PRIMARY KEY,
    nonce          text NOT NULL,
    host           text NOT NULL,
    sdk            text NOT NULL,
    sdk_version    text NOT NULL,
    code_version   text NOT NULL DEFAULT '',
    jobs           text[] NOT NULL,
    slots          integer NOT NULL,
    -- Jobs of which the worker runs fewer at once than it has slots.
    concurrency    jsonb NOT NULL DEFAULT '{}',
    draining       boolean NOT NULL,
    -- The nonce of the process that was asked to drain; its successor has another nonce.
    drain_nonce    text,
    first_heard_at timestamptz NOT NULL,
    last_heard_at  timestamptz NOT NULL,
    -- No heartbeat for the orphan timeout. The gate does not read such workers.
    gone           boolean NOT NULL DEFAULT false
);

CREATE INDEX worker_here ON dispatcher.worker (name) WHERE NOT gone;

-- Heartbeats that dispatchers send to themselves through NATS. They prove that a heartbeat of a
-- worker would have been received.
CREATE TABLE dispatcher.witness (
    name          text PRIMARY KEY,
    heard_since   timestamptz NOT NULL,
    last_heard_at timestamptz NOT NULL
);

-- Pruned manifests. Their work is refused, however late it arrives.
CREATE TABLE dispatcher.tombstone (
    manifest_id  uuid PRIMARY KEY,
    manifest     text NOT NULL,
    group_name   text NOT NULL,
    reason       text NOT NULL,
    pruned_at    timestamptz NOT NULL,
    -- When the last row of the manifest was deleted.
    confirmed_at timestamptz
);

CREATE INDEX tombstone_unconfirmed ON dispatcher.tombstone (pruned_at) WHERE confirmed_at IS NULL;

-- Every event, with a partition for each day.
CREATE SEQUENCE dispatcher.history_number AS bigint;

CREATE TABLE dispatcher.history (
    id          bigint NOT NULL DEFAULT nextval('dispatcher.history_number'),
    event_id    text NOT NULL,
    type        text NOT NULL,
    subject     text NOT NULL,
    source      text NOT NULL,
    occurred_at timestamptz NOT NULL,
    data        jsonb NOT NULL,
    accepted    boolean NOT NULL,
    refusal     text,
    -- Null if the event is about a lease with several runs, or about no single work.
    work_id     uuid,
    run_id      uuid,
    lease_id    uuid,
    recorded_at timestamptz NOT NULL,
    CHECK (accepted = (refusal IS NULL))
) PARTITION BY RANGE (recorded_at);

ALTER SEQUENCE dispatcher.history_number OWNED BY dispatcher.history.id;

CREATE INDEX history_id ON dispatcher.history (id);
CREATE INDEX history_work ON dispatcher.history (work_id) WHERE work_id IS NOT NULL;
CREATE INDEX history_lease ON dispatcher.history (lease_id)
    WHERE work_id IS NULL AND lease_id IS NOT NULL;
CREATE INDEX history_snapshot ON dispatcher.history (work_id)
    WHERE type = 'headway.history.snapshot.v1';
-- Few events: about manifests and about the history itself.
CREATE INDEX history_type ON dispatcher.history (type)
    WHERE work_id IS NULL AND lease_id IS NULL;
-- Actions of people, for the audit.
CREATE INDEX history_operator ON dispatcher.history (recorded_at, id)
    WHERE source LIKE 'operator/%';

-- The events of a row of history: one, or for a packed event about runs of a lease one for each run,
-- and one for each work that it settled.
CREATE FUNCTION dispatcher.event_parts(recorded dispatcher.history)
    RETURNS TABLE (event_id text, type text, subject text, source text, occurred_at timestamptz,
                   data jsonb, work_id uuid, run_id uuid, lease_id uuid)
    LANGUAGE sql STABLE AS $$
    SELECT recorded.event_id, recorded.type, recorded.subject, recorded.source,
           recorded.occurred_at, recorded.data, recorded.work_id, recorded.run_id,
           recorded.lease_id
    WHERE recorded.type <> 'headway.runs.completed.v1'
      AND (recorded.type <> 'headway.run.dispatched.v1' OR recorded.work_id IS NOT NULL)
    UNION ALL
    SELECT recorded.event_id || '.' || (packed.run ->> 'run'), recorded.type, packed.run ->> 'run',
           recorded.source, recorded.occurred_at, split.shared || packed.run,
           (packed.run ->> 'work')::uuid, (packed.run ->> 'run')::uuid, recorded.lease_id
    FROM (SELECT recorded.data - 'runs', recorded.data -> 'runs' OFFSET 0) AS split (shared, runs)
    CROSS JOIN LATERAL jsonb_array_elements(split.runs) AS packed (run)
    WHERE recorded.type = 'headway.run.dispatched.v1' AND recorded.work_id IS NULL
    UNION ALL
    SELECT part.event_id, part.type, part.subject, part.source, part.occurred_at, part.data,
           (packed.run ->> 'work')::uuid, part.run_id, recorded.lease_id
    FROM jsonb_array_elements(recorded.data -> 'runs') AS packed (run)
    CROSS JOIN LATERAL (VALUES
        (recorded.event_id || '.' || (packed.run ->> 'run'), 'headway.run.completed.v1',
         packed.run ->> 'run', recorded.source,
         coalesce((packed.run ->> 'finished_at')::timestamptz, recorded.occurred_at), packed.run,
         (packed.run ->> 'run')::uuid),
        ('settled.' || (packed.run ->> 'work') || '.' || (packed.run ->> 'round'),
         'headway.work.settled.v1', packed.run ->> 'work', 'headway/dispatcher',
         (packed.run ->> 'settled_at')::timestamptz,
         jsonb_build_object('work', packed.run -> 'work', 'round', packed.run -> 'round',
                            'run', packed.run -> 'run', 'outcome', 'completed',
                            'attempts', packed.run -> 'attempts',
                            'settled_at', packed.run -> 'settled_at'),
         NULL::uuid)
    ) AS part (event_id, type, subject, source, occurred_at, data, run_id)
    WHERE recorded.type = 'headway.runs.completed.v1' AND part.occurred_at IS NOT NULL
$$;

-- History with one row for each event.
CREATE VIEW dispatcher.history_event AS
SELECT history.id, part.event_id, part.type, part.subject, part.source, part.occurred_at,
       part.data, history.accepted, history.refusal, part.work_id, part.run_id, part.lease_id,
       history.recorded_at
FROM dispatcher.history
CROSS JOIN LATERAL dispatcher.event_parts(history) AS part;

-- Events of days without a partition, until that partition exists.
CREATE TABLE dispatcher.history_default PARTITION OF dispatcher.history DEFAULT;

-- Create the partition of a day and move its events there; false if it exists. It is created
-- detached and attached afterwards, so that writers of other days do not wait.
CREATE FUNCTION dispatcher.add_history_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    partition_name text := 'history_' || to_char(day, 'YYYYMMDD');
    begins timestamptz := day::timestamp AT TIME ZONE 'UTC';
    ends timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF to_regclass('dispatcher.' || partition_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE dispatcher.history_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'CREATE TABLE dispatcher.%I (LIKE dispatcher.history INCLUDING DEFAULTS'
        ' INCLUDING CONSTRAINTS)', partition_name);
    EXECUTE format(
        'WITH moved AS (DELETE FROM dispatcher.history_default'
        ' WHERE recorded_at >= %L AND recorded_at < %L RETURNING *)'
        ' INSERT INTO dispatcher.%I SELECT * FROM moved', begins, ends, partition_name);
    EXECUTE format(
        'ALTER TABLE dispatcher.history ATTACH PARTITION dispatcher.%I'
        ' FOR VALUES FROM (%L) TO (%L)', partition_name, begins, ends);
    RETURN true;
END $$;

-- Drop the partition of a day.
CREATE FUNCTION dispatcher.drop_history_day(day date) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE dispatcher.%I', 'history_' || to_char(day, 'YYYYMMDD'));
END $$;

SELECT dispatcher.add_history_day((now() AT TIME ZONE 'UTC')::date + ahead)
FROM generate_series(0, 7) AS ahead;

-- Ids of applied events, so that a second delivery changes nothing. Publishers choose the ids, so
-- an id is unique only within its lease.
CREATE TABLE dispatcher.inbox (
    lease_id    uuid NOT NULL,
    event_id    text NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (lease_id, event_id)
);

CREATE TABLE dispatcher.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  text NOT NULL,
    subject     text NOT NULL,
    -- Null for an order, which is rebuilt from its lease if the handover to the relay is lost.
    body        bytea,
    traceparent text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- A process that publishes right after its commit deletes by the id of the message.
CREATE INDEX outbox_message_id ON dispatcher.outbox (message_id);

-- Messages that could not be read or handled, with their bytes.
CREATE TABLE dispatcher.rejected (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject     text NOT NULL,
    headers     jsonb NOT NULL,
    body        bytea NOT NULL,
    reason      text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX rejected_at ON dispatcher.rejected (rejected_at);

-- Answers to requests with an idempotency key: a repeated request gets the same answer.
CREATE TABLE dispatcher.answered (
    kind        text NOT NULL,
    key         text NOT NULL,
    -- Hash of the parameters.
    print       bytea NOT NULL,
    answer      bytea NOT NULL,
    answered_at timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE INDEX answered_at ON dispatcher.answered (answered_at);

-- Let a role read everything that people may see: not the tokens of leases, nor messages that
-- contain them.
CREATE FUNCTION dispatcher.grant_reading(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA dispatcher TO %s', reader);
    EXECUTE format(
        'GRANT SELECT ON dispatcher.group_limit, dispatcher.job_limit, dispatcher.manifest_switch,'
        ' dispatcher.rate_use, dispatcher.job_duration, dispatcher.work_queue, dispatcher.closed_lane,'
        ' dispatcher.ready_lane, dispatcher.waiting, dispatcher.unsettled, dispatcher.metadata, dispatcher.run,'
        ' dispatcher.run_report, dispatcher.run_log,'
        ' dispatcher.dead_letter, dispatcher.canary, dispatcher.worker, dispatcher.witness,'
        ' dispatcher.history, dispatcher.history_event, dispatcher.tombstone, dispatcher.migration TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, job, groups, created_at, claimed_by, nonce, last_heard_at, sequence, ended_at,'
        ' listed_at, ordered_at) ON dispatcher.lease TO %s', reader);
    EXECUTE format('GRANT SELECT (id, subject, created_at) ON dispatcher.outbox TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, subject, reason, rejected_at) ON dispatcher.rejected TO %s', reader);
END
$$;

-- Roles belong to the server, so another database may have created it. The user who migrates may
-- not be allowed to create roles.
DO $$
BEGIN
    IF to_regrole('headway_reader') IS NULL THEN
        CREATE ROLE headway_reader NOLOGIN;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'role headway_reader not created: % may not create roles', current_user
            USING HINT = 'An administrator runs: CREATE ROLE headway_reader NOLOGIN; '
                         'GRANT headway_reader TO <the console''s user>; and in this database '
                         'SELECT dispatcher.grant_reading(''headway_reader''), '
                         'scheduler.grant_reading(''headway_reader'');';
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server created it at the same moment
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_reader') IS NOT NULL THEN
        PERFORM dispatcher.grant_reading('headway_reader');
    END IF;
END
$$;

-- The user who created the role becomes a member, so that a console with the same user can read.
DO $$
BEGIN
    IF to_regrole('headway_reader') IS NOT NULL
       AND NOT pg_has_role(current_user, 'headway_reader', 'MEMBER') THEN
        GRANT headway_reader TO CURRENT_USER;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING '% may not join the role headway_reader', current_user
            USING HINT = 'An administrator runs: GRANT headway_reader TO <the console''s user>;';
END
$$;
