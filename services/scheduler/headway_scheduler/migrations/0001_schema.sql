-- The schema of the scheduler. Only the scheduler writes these tables, except `enqueued`, which
-- headway.enqueue() fills.

-- Applications, and the source that declares each: code at its start, or files that a person
-- applied.
CREATE TABLE scheduler.application (
    name        text PRIMARY KEY,
    generation  bigint NOT NULL CHECK (generation >= 0),
    declared_at timestamptz NOT NULL,
    source      text NOT NULL CHECK (source IN ('code', 'files')),
    -- The author of the last declaration, as in the audit.
    declared_by text NOT NULL
);

-- Versions rise over all jobs, groups and manifests: one that is deleted and created again must
-- not look older to the dispatcher than before.
CREATE SEQUENCE scheduler.job_version;
CREATE SEQUENCE scheduler.group_version;
CREATE SEQUENCE scheduler.manifest_version;

CREATE TABLE scheduler.job (
    name            text PRIMARY KEY,
    -- The application that declared it last.
    owner           text NOT NULL,
    -- All applications that declare it. A job that none declares is retired.
    declared_by     text[] NOT NULL DEFAULT '{}',
    title           text NOT NULL DEFAULT '',
    category        text NOT NULL DEFAULT '',
    description     text NOT NULL,
    input_schema    jsonb,
    takes_input     boolean NOT NULL DEFAULT true,
    max_active      integer CHECK (max_active >= 0),
    rate            jsonb,
    counts_globally boolean NOT NULL DEFAULT true,
    batch           integer CHECK (batch >= 1),
    -- Terms of work that no manifest states; those at their default are left out.
    terms           jsonb NOT NULL DEFAULT '{}',
    -- `max_active` and `rate` as an operator set them; null there removes the limit.
    operator_limits jsonb NOT NULL DEFAULT '{}',
    version         bigint NOT NULL DEFAULT nextval('scheduler.job_version'),
    declared_at     timestamptz NOT NULL,
    retired_at      timestamptz,
    CONSTRAINT job_retired CHECK ((retired_at IS NULL) = (declared_by <> '{}'))
);

CREATE TABLE scheduler.manifest_group (
    name            text PRIMARY KEY,
    owner           text,
    max_active      integer CHECK (max_active >= 0),
    rate            jsonb,
    priority        smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 31),
    enabled         boolean NOT NULL DEFAULT true,
    -- Settings that an operator owns: code does not change them.
    operator_fields text[] NOT NULL DEFAULT '{}',
    -- For each setting the value that code states, and which application states it:
    -- {"max_active": {"value": 3, "app": "billing"}}.
    declared        jsonb NOT NULL DEFAULT '{}',
    version         bigint NOT NULL DEFAULT nextval('scheduler.group_version'),
    changed_at      timestamptz NOT NULL
);

-- Deleted groups, so that a deletion whose message was lost is announced again.
CREATE TABLE scheduler.deleted_group (
    name       text PRIMARY KEY,
    version    bigint NOT NULL DEFAULT nextval('scheduler.group_version'),
    changed_at timestamptz NOT NULL
);

CREATE TABLE scheduler.manifest (
    id                  uuid PRIMARY KEY,
    external_id         text NOT NULL,
    owner               text NOT NULL,
    job                 text NOT NULL,
    group_name          text NOT NULL REFERENCES scheduler.manifest_group (name),
    batch               text,
    -- Names and values by which people find manifests, and pause them together.
    labels              jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    input               jsonb,
    timing              jsonb NOT NULL,
    misfire             jsonb NOT NULL DEFAULT '{}',
    overlap             jsonb NOT NULL DEFAULT '{}',
    jitter_seconds      double precision NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    -- `WorkTerms` of headway_contract.work without most defaults. No query filters or sorts by them.
    terms               jsonb NOT NULL,
    depends_on          uuid REFERENCES scheduler.manifest (id) ON DELETE SET NULL,
    dormant             boolean NOT NULL DEFAULT false,
    -- The definition as it was sent, if it takes terms from its job: they are resolved again when
    -- the job is declared differently. Null if the definition states all terms.
    sent                jsonb,
    definition_hash     text NOT NULL,
    declared_at         timestamptz NOT NULL,
    -- When its owner stopped to declare it; it stays under the policies `disable` and `keep`.
    undeclared_at       timestamptz,
    -- Fields that an operator owns: code does not change them.
    operator_fields     text[] NOT NULL DEFAULT '{}',

    enabled             boolean NOT NULL DEFAULT true,
    -- The code, an operator, itself (a one-shot), or a start that no longer declared it.
    disabled_by         text CHECK (disabled_by IN ('code', 'operator', 'once', 'pruned')),
    -- What was announced last to the dispatcher, and as which version: a paused manifest is
    -- disabled there.
    announced_enabled   boolean NOT NULL DEFAULT true,
    version             bigint NOT NULL DEFAULT 0,

    -- The last pause. It lasts until `resumed_at` is set; `paused_until` ends it automatically.
    paused_at           timestamptz,
    resumed_at          timestamptz,
    paused_until        timestamptz,
    pause_reason        text NOT NULL DEFAULT '',
    paused_by           text,

    -- The first due time without a decision.
    next_due_at         timestamptz,
    -- When the tick looks at it. Null while it cannot fire: it is disabled, paused, blocked, has no
    -- room for more work, or has no due time.
    wake_at             timestamptz,
    -- Why the tick cannot judge it, such as a zone that this machine does not know.
    trouble             text,

    success_number      bigint NOT NULL DEFAULT 0,
    -- The last success of its parent that a dependent has decided about.
    seen_success        bigint NOT NULL DEFAULT 0,
    -- The trace of its last success, which dependents link to.
    success_traceparent text,
    last_outcome        text,
    last_settled_at     timestamptz,
    last_success_at     timestamptz,
    -- Dead letters that block it, oldest first.
    dead_letters        uuid[] NOT NULL DEFAULT '{}',
    blocked_by          uuid GENERATED ALWAYS AS (dead_letters[1]) STORED,

    -- When the prune began and was last announced, and why.
    pruning_at          timestamptz,
    prune_announced_at  timestamptz,
    prune_reason        text,

    CONSTRAINT manifest_enabled_says_by_whom CHECK (enabled = (disabled_by IS NULL)),
    CHECK (paused_at IS NOT NULL OR resumed_at IS NULL),
    CHECK (paused_until IS NULL OR (paused_at IS NOT NULL AND resumed_at IS NULL))
    -- The front of the index of wake times changes all the time: leave room on pages, vacuum often.
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- Only manifests that are awake. It answers which groups have due manifests without the table.
CREATE INDEX manifest_awake ON scheduler.manifest (wake_at) INCLUDE (id, group_name)
    WHERE wake_at IS NOT NULL;
CREATE INDEX manifest_group_wake ON scheduler.manifest (group_name, wake_at) INCLUDE (id)
    WHERE wake_at IS NOT NULL;
CREATE UNIQUE INDEX manifest_external_id ON scheduler.manifest (external_id)
    WHERE pruning_at IS NULL;
CREATE INDEX manifest_owner ON scheduler.manifest (owner, batch);
CREATE INDEX manifest_parent ON scheduler.manifest (depends_on) WHERE depends_on IS NOT NULL;
CREATE INDEX manifest_inherits ON scheduler.manifest (job) WHERE sent IS NOT NULL;
CREATE INDEX manifest_paused_until ON scheduler.manifest (paused_until)
    WHERE paused_until IS NOT NULL;
CREATE INDEX manifest_pruning ON scheduler.manifest (pruning_at) WHERE pruning_at IS NOT NULL;

-- The policies and the group of a manifest, as a decision stores them.
CREATE FUNCTION scheduler.policies(manifest scheduler.manifest) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT jsonb_build_object('misfire', coalesce(manifest.misfire ->> 'policy', 'fire_once'),
                              'overlap', coalesce(manifest.overlap ->> 'policy', 'skip'),
                              'group', manifest.group_name)
$$;

-- Every timing of a manifest, so that the ledger can be checked against the past.
CREATE TABLE scheduler.timing (
    manifest_id uuid NOT NULL REFERENCES scheduler.manifest (id),
    since       timestamptz NOT NULL,
    timing      jsonb NOT NULL,
    PRIMARY KEY (manifest_id, since)
);

-- The ledger: one decision for each occurrence, or for a stretch that is skipped together. An owed
-- decision waits for room. No foreign key to the manifest: rows are written under its lock and
-- deleted before it, and checking each row is the largest cost of a tick.
CREATE TABLE scheduler.occurrence (
    manifest_id          uuid NOT NULL,
    cause                text NOT NULL,
    first_due_at         timestamptz NOT NULL,
    last_due_at          timestamptz NOT NULL,
    decision             text NOT NULL,
    reason               text,
    -- The policies and the group in force when it was decided:
    -- {"misfire": "fire_once", "overlap": "skip", "group": "ops"}.
    policies             jsonb NOT NULL,
    decided_at           timestamptz NOT NULL,
    actor                text,
    -- Whether a request named this manifest: a trigger or a backfill.
    explicit             boolean NOT NULL DEFAULT false,
    -- Values of its work in place of those of the manifest.
    has_input            boolean NOT NULL DEFAULT false,
    input                jsonb,
    not_before           timestamptz,
    priority             smallint CHECK (priority BETWEEN 0 AND 31),
    start_within_seconds double precision CHECK (start_within_seconds > 0),
    -- The trace of the trigger or activation, which the work links to.
    traceparent          text,
    work_id              uuid,
    -- The waiting work that a trigger brought forward instead of making its own.
    brought_forward      uuid CHECK (brought_forward IS NULL OR decision = 'skipped'),
    -- The cause of another decision that keeps this one from being deleted: the one under which it
    -- is owed again, or whose work it brought forward.
    kept_with            text,
    outcome              text,
    -- The highest settled round of its work: an outcome that is received again changes nothing.
    settled_round        integer NOT NULL DEFAULT 0,
    -- When its work was last settled, or the owed decision was dropped.
    settled_at           timestamptz,
    PRIMARY KEY (manifest_id, cause),
    CHECK (first_due_at <= last_due_at),
    CONSTRAINT occurrence_decision CHECK (decision IN ('queued', 'skipped', 'owed')),
    CONSTRAINT occurrence_work CHECK ((decision = 'queued') = (work_id IS NOT NULL)),
    CONSTRAINT occurrence_reason CHECK ((decision = 'queued') = (reason IS NULL)),
    CONSTRAINT occurrence_settled CHECK (settled_at IS NULL OR decision <> 'owed')
    -- Half of each page is left for the outcomes, so that they change no index.
) WITH (fillfactor = 50);

CREATE INDEX occurrence_owed ON scheduler.occurrence (manifest_id, decided_at, first_due_at)
    WHERE decision = 'owed';
CREATE INDEX occurrence_time ON scheduler.occurrence (manifest_id, first_due_at);
-- Written in the order of time and read only for deletion, so a coarse index is enough.
CREATE INDEX occurrence_decided ON scheduler.occurrence USING brin (decided_at);

-- Queued and unsettled work, with and without a manifest. No foreign key, as for decisions.
CREATE TABLE scheduler.work (
    id                   uuid PRIMARY KEY,
    manifest_id          uuid,
    cause                text NOT NULL,
    round                integer NOT NULL DEFAULT 1,
    slot                 integer NOT NULL DEFAULT 0,
    queued_at            timestamptz NOT NULL,
    -- When healing reconciled it last and does so next (null: never yet), and how often in a row
    -- the dispatcher answered that it is under way; the intervals grow with that.
    reconciled_at        timestamptz,
    reconcile_at         timestamptz,
    reconcile_count      smallint NOT NULL DEFAULT 0 CHECK (reconcile_count >= 0),
    -- When it was last republished because its message was lost, and how often.
    republished_at       timestamptz,
    republish_count      smallint NOT NULL DEFAULT 0 CHECK (republish_count >= 0),
    -- When its cancellation was last requested, and why.
    cancel_requested_at  timestamptz,
    cancel_reason        text,
    -- When a trigger last asked that it goes first.
    forward_requested_at timestamptz,
    CHECK ((cancel_requested_at IS NULL) = (cancel_reason IS NULL))
    -- Rows come and go quickly, so a share of the table says nothing about when to vacuum.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE INDEX work_manifest ON scheduler.work (manifest_id);
-- Serves both work that was never reconciled, by age, and work that is due again.
CREATE INDEX work_reconcile_at ON scheduler.work (reconcile_at, queued_at);

-- Rounds of work without a manifest whose end arrived before their beginning.
CREATE TABLE scheduler.overtaken (
    work_id    uuid PRIMARY KEY,
    round      integer NOT NULL,
    settled_at timestamptz NOT NULL
);

-- Open dead letters of manifests, whether they block or not, for reconciliation.
CREATE TABLE scheduler.unresolved (
    dead_letter uuid PRIMARY KEY,
    manifest_id uuid NOT NULL REFERENCES scheduler.manifest (id) ON DELETE CASCADE
);

CREATE INDEX unresolved_manifest ON scheduler.unresolved (manifest_id);

-- Resolved dead letters: the outcome that made one may arrive after its resolution.
CREATE TABLE scheduler.resolved (
    dead_letter uuid PRIMARY KEY,
    resolved_at timestamptz NOT NULL
);

-- Enqueued work, kept until it is settled. Then rows without a key are deleted; the others stay
-- without their input, so that the same key finds its work again.
CREATE TABLE scheduler.enqueued (
    work_id     uuid PRIMARY KEY,
    cause       text NOT NULL,
    job         text NOT NULL,
    key         text,
    input       jsonb,
    group_name  text,
    priority    smallint CHECK (priority BETWEEN 0 AND 31),
    delay       interval,
    not_before  timestamptz,
    start_by    timestamptz,
    traceparent text,
    -- A digest of the parameters, to compare them after the input is deleted.
    fingerprint bytea NOT NULL,
    enqueued_by text NOT NULL,
    enqueued_at timestamptz NOT NULL,
    state       text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'queued', 'refused')),
    reason      text,
    decided_at  timestamptz,
    -- When it was enqueued by the clock of the schedule, for a republished message.
    queued_at   timestamptz,
    -- When its work was last settled; the key is kept for a while from then on.
    settled_at  timestamptz,
    CHECK ((state = 'refused') = (reason IS NOT NULL)),
    CHECK ((state = 'waiting') = (decided_at IS NULL)),
    CHECK (delay IS NULL OR not_before IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE UNIQUE INDEX enqueued_key ON scheduler.enqueued (job, key) WHERE key IS NOT NULL;
CREATE INDEX enqueued_waiting ON scheduler.enqueued (enqueued_at) WHERE state = 'waiting';
CREATE INDEX enqueued_refused ON scheduler.enqueued (job, decided_at) WHERE state = 'refused';
CREATE INDEX enqueued_remembered ON scheduler.enqueued (coalesce(settled_at, decided_at))
    WHERE state = 'queued';

-- The scheduler that ticks, and the one that heals. The epoch rises when the holder changes.
CREATE TABLE scheduler.leader (
    name      text PRIMARY KEY,
    epoch     bigint NOT NULL,
    holder    text NOT NULL,
    since     timestamptz NOT NULL,
    ticked_at timestamptz
);

-- The end of each stream at a time when everything decided before was published: no message from
-- before can be stored behind it, in the stream that was created at that time.
CREATE TABLE scheduler.stream_mark (
    stream   text PRIMARY KEY,
    -- As the broker writes it, to the nanosecond; it is only compared.
    created  text NOT NULL,
    sequence bigint NOT NULL,
    taken_at timestamptz NOT NULL
);

-- The audit. Same columns as the dispatcher's history, because one library writes both.
CREATE TABLE scheduler.history (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id    text NOT NULL,
    type        text NOT NULL,
    subject     text NOT NULL,
    source      text NOT NULL,
    occurred_at timestamptz NOT NULL,
    data        jsonb NOT NULL,
    accepted    boolean NOT NULL,
    refusal     text,
    run_id      uuid,
    lease_id    uuid,
    work_id     uuid,
    recorded_at timestamptz NOT NULL,
    CHECK (accepted = (refusal IS NULL))
);

CREATE INDEX history_subject ON scheduler.history (subject, id);
CREATE INDEX history_recorded ON scheduler.history (recorded_at, id);

-- Messages to publish.
CREATE TABLE scheduler.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  text NOT NULL,
    subject     text NOT NULL,
    body        bytea NOT NULL,
    traceparent text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Messages live for milliseconds, so compressing them costs more than it saves.
ALTER TABLE scheduler.outbox ALTER COLUMN body SET STORAGE EXTERNAL;
-- A process that published right after its commit deletes by message id.
CREATE INDEX outbox_message_id ON scheduler.outbox (message_id);

-- Messages that could not be read or handled, with their bytes.
CREATE TABLE scheduler.rejected (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject     text NOT NULL,
    headers     jsonb NOT NULL,
    body        bytea NOT NULL,
    reason      text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX rejected_at ON scheduler.rejected (rejected_at);

-- Answers to requests with an idempotency key.
CREATE TABLE scheduler.answered (
    kind        text NOT NULL,
    key         text NOT NULL,
    -- A digest of the parameters.
    print       bytea NOT NULL,
    answer      bytea NOT NULL,
    answered_at timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE INDEX answered_at ON scheduler.answered (answered_at);

-- Notifications by webhook, written in the transaction of their fact and sent by a pass. Empty
-- while no webhook is configured.
CREATE TABLE scheduler.notification (
    -- Also the id of the event that is sent, on every attempt.
    id              uuid PRIMARY KEY,
    type            text NOT NULL,
    subject         text NOT NULL,
    data            jsonb NOT NULL,
    created_at      timestamptz NOT NULL,
    state           text NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'folded', 'delivered', 'given_up')),
    attempts        integer NOT NULL DEFAULT 0,
    -- Of a pending one; during an attempt, when another process may try.
    next_attempt_at timestamptz CHECK ((next_attempt_at IS NOT NULL) = (state = 'pending')),
    finished_at     timestamptz CHECK ((finished_at IS NULL) = (state = 'pending')),
    -- The digest that replaces it.
    folded_into     uuid CHECK ((folded_into IS NOT NULL) = (state = 'folded')),
    last_error      text NOT NULL DEFAULT ''
);

CREATE INDEX notification_pending ON scheduler.notification (next_attempt_at)
    WHERE state = 'pending';
CREATE INDEX notification_age ON scheduler.notification (created_at);

-- The schema `headway` has what applications use. It stays if the schema of the scheduler is
-- dropped, so its contents are replaced here.
CREATE SCHEMA IF NOT EXISTS headway;

-- Enqueue work of a job; it exists once the caller's transaction commits. Returns its id.
-- The same key of a job returns the same work, and is refused with other parameters.
CREATE OR REPLACE FUNCTION headway.enqueue(
    job         text,
    input       jsonb DEFAULT NULL,
    "group"     text DEFAULT NULL,
    priority    integer DEFAULT NULL,
    delay       interval DEFAULT NULL,
    not_before  timestamptz DEFAULT NULL,
    start_by    timestamptz DEFAULT NULL,
    key         text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    given  CONSTANT jsonb := nullif(enqueue.input, 'null'::jsonb);
    -- Of version 7 (the time, then random bits), like the ids of other work.
    random CONSTANT bytea := uuid_send(gen_random_uuid());
    moment CONSTANT bytea := int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    work   CONSTANT uuid := encode(
        set_byte(overlay(random PLACING substring(moment FROM 3) FROM 1 FOR 6), 6,
                 get_byte(random, 6) & 15 | 112), 'hex')::uuid;
    declared record;
    known    record;
    why      text;
    print    bytea;
BEGIN
    SELECT takes_input, retired_at INTO declared FROM scheduler.job WHERE name = enqueue.job;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'headway: job "%" is not declared', enqueue.job
            USING ERRCODE = 'undefined_object',
                  HINT = 'Start the scheduler of the application that has it, or correct the name.';
    END IF;
    -- A key that was used while the job was declared still finds its work.
    IF declared.retired_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM scheduler.enqueued WHERE job = enqueue.job AND key = enqueue.key) THEN
        RAISE EXCEPTION 'headway: job "%" is retired: no application declares it since %',
            enqueue.job, to_char(declared.retired_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Declare the job again, or enqueue another one.';
    END IF;
    why := CASE
        WHEN given IS NOT NULL AND NOT declared.takes_input THEN
            'the job takes no input'
        WHEN octet_length(given::text) > 262144 THEN
            'the input is larger than 262144 bytes: send where it is found'
        WHEN enqueue."group" !~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$' THEN
            'the group must be 1 to 64 letters, digits, "-" and "_", starting with a letter or digit'
        WHEN enqueue.priority NOT BETWEEN 0 AND 31 THEN
            'the priority must be from 0 to 31'
        WHEN enqueue.delay IS NOT NULL AND enqueue.not_before IS NOT NULL THEN
            'give either a delay or a not_before'
        WHEN enqueue.delay < interval '0' OR enqueue.delay > interval '10 years' THEN
            'the delay must be from nothing to 10 years'
        WHEN NOT isfinite(enqueue.not_before) OR NOT isfinite(enqueue.start_by)
             OR extract(year FROM enqueue.not_before) NOT BETWEEN 1970 AND 9998
             OR extract(year FROM enqueue.start_by) NOT BETWEEN 1970 AND 9998 THEN
            'not_before and start_by must be in the years 1970 to 9998'
        WHEN length(enqueue.key) NOT BETWEEN 1 AND 255 THEN
            'the key must have 1 to 255 characters'
    END;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'headway: job "%" cannot be enqueued so: %', enqueue.job, why
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Intervals and times as seconds: their text depends on settings of the session.
    print := sha256(convert_to(jsonb_build_array(
        given, enqueue."group", enqueue.priority, extract(epoch FROM enqueue.delay),
        extract(epoch FROM enqueue.not_before), extract(epoch FROM enqueue.start_by))::text,
        'UTF8'));
    LOOP
        INSERT INTO scheduler.enqueued
            (work_id, cause, job, key, input, group_name, priority, delay, not_before, start_by,
             traceparent, fingerprint, enqueued_by, enqueued_at)
        VALUES
            (work, format('enqueue:%s:%s', enqueue.job, coalesce(enqueue.key, work::text)),
             enqueue.job, enqueue.key, given, enqueue."group", enqueue.priority, enqueue.delay,
             enqueue.not_before, enqueue.start_by, left(enqueue.traceparent, 255), print,
             session_user, clock_timestamp())
        ON CONFLICT (job, key) WHERE key IS NOT NULL DO NOTHING;
        IF FOUND THEN
            RETURN work;
        END IF;
        SELECT work_id, fingerprint, enqueued_at INTO known
        FROM scheduler.enqueued WHERE job = enqueue.job AND key = enqueue.key;
        -- A row that was deleted meanwhile is not found, and its key is free again.
        EXIT WHEN FOUND;
    END LOOP;
    IF known.fingerprint IS DISTINCT FROM print THEN
        RAISE EXCEPTION 'headway: the key "%" of job "%" was used at % with other parameters',
            enqueue.key, enqueue.job, known.enqueued_at
            USING ERRCODE = 'unique_violation',
                  HINT = 'The same key asks for the same work: use another key for other work.';
    END IF;
    RETURN known.work_id;
END
$$;

REVOKE ALL ON FUNCTION
    headway.enqueue(text, jsonb, text, integer, interval, timestamptz, timestamptz, text, text)
    FROM PUBLIC;

-- Let a role read what users may see, but not the bodies of messages.
CREATE FUNCTION scheduler.grant_reading(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA scheduler TO %s', reader);
    EXECUTE format(
        'GRANT SELECT ON scheduler.manifest_group, scheduler.job, scheduler.application,'
        ' scheduler.manifest, scheduler.timing, scheduler.occurrence, scheduler.work,'
        ' scheduler.leader, scheduler.history, scheduler.enqueued, scheduler.stream_mark,'
        ' scheduler.migration TO %s', reader);
    EXECUTE format('GRANT SELECT (id, subject, created_at) ON scheduler.outbox TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, subject, reason, rejected_at) ON scheduler.rejected TO %s', reader);
END
$$;

-- Roles belong to the whole server: another database may have created them already, and the user
-- that migrates may not be allowed to. `headway_enqueue` may enqueue and nothing else;
-- `headway_reader`, which the dispatcher's schema also creates, may read.
DO $$
BEGIN
    IF to_regrole('headway_enqueue') IS NULL THEN
        CREATE ROLE headway_enqueue NOLOGIN;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'role headway_enqueue not created: % may not create roles',
            current_user;
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server was faster
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_reader') IS NULL THEN
        CREATE ROLE headway_reader NOLOGIN;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'role headway_reader not created: % may not create roles',
            current_user
            USING HINT = 'An administrator runs: CREATE ROLE headway_reader NOLOGIN; '
                         'GRANT headway_reader TO <the console''s user>; and in this database '
                         'SELECT dispatcher.grant_reading(''headway_reader''), '
                         'scheduler.grant_reading(''headway_reader'');';
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server was faster
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_enqueue') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA headway TO headway_enqueue;
        GRANT EXECUTE ON FUNCTION
            headway.enqueue(text, jsonb, text, integer, interval, timestamptz, timestamptz, text,
                            text)
            TO headway_enqueue;
    END IF;
    IF to_regrole('headway_reader') IS NOT NULL THEN
        PERFORM scheduler.grant_reading('headway_reader');
    END IF;
END
$$;
