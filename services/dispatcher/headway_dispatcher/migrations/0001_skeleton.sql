-- What the dispatcher owns. Written by the dispatcher alone.

CREATE TABLE dispatcher.group_limit (
    name       text PRIMARY KEY,
    max_active integer CHECK (max_active >= 0),
    priority   smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 31),
    enabled    boolean NOT NULL DEFAULT true,
    -- Zero until the scheduler has told its limits.
    version    bigint NOT NULL DEFAULT 0
);

CREATE TABLE dispatcher.work_queue (
    id                   uuid PRIMARY KEY,
    round                integer NOT NULL,
    manifest_id          uuid,
    manifest             text,
    slot                 integer NOT NULL,
    group_name           text NOT NULL REFERENCES dispatcher.group_limit (name),
    job                  text NOT NULL,
    input                jsonb,
    input_schema         text,
    cause                text NOT NULL,
    due_at               timestamptz,
    queued_at            timestamptz NOT NULL,
    priority             smallint NOT NULL CHECK (priority BETWEEN 0 AND 31),
    -- Queued at, less a step for each priority: age and priority in one indexable order.
    rank                 timestamptz NOT NULL,
    not_before           timestamptz NOT NULL,
    retry                jsonb NOT NULL,
    timeout_seconds      double precision NOT NULL,
    cancel_grace_seconds double precision NOT NULL,
    on_lost_contact      text NOT NULL,
    state                text NOT NULL CHECK (state IN ('queued', 'dispatched', 'waiting', 'settled')),
    wait_reason          text,
    runs                 integer NOT NULL DEFAULT 0,
    attempts             integer NOT NULL DEFAULT 0,
    run_id               uuid,
    outcome              text,
    settled_at           timestamptz,
    traceparent          text,
    received_at          timestamptz NOT NULL,
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CHECK ((state IN ('queued', 'waiting')) = (wait_reason IS NOT NULL)),
    CHECK (state <> 'dispatched' OR run_id IS NOT NULL)
);

-- The backstop of the seeds: one unsettled piece of work for each slot of a manifest.
CREATE UNIQUE INDEX work_queue_one_unsettled ON dispatcher.work_queue (manifest_id, slot)
    WHERE state <> 'settled' AND manifest_id IS NOT NULL;
CREATE INDEX work_queue_order ON dispatcher.work_queue (group_name, rank)
    WHERE state IN ('queued', 'waiting');
CREATE INDEX work_queue_not_before ON dispatcher.work_queue (not_before)
    WHERE state IN ('queued', 'waiting');

CREATE TABLE dispatcher.lease (
    id                uuid PRIMARY KEY,
    token             text NOT NULL,
    job               text NOT NULL,
    created_at        timestamptz NOT NULL,
    claimed_by        text,
    nonce             text,
    last_heard_at     timestamptz,
    -- How far the lease's chain of events has been projected, and links not yet joined to it.
    sequence          bigint NOT NULL DEFAULT 0,
    loose_links       jsonb NOT NULL DEFAULT '{}',
    ended_at          timestamptz,
    CHECK ((claimed_by IS NULL) = (nonce IS NULL)),
    CHECK ((claimed_by IS NULL) = (last_heard_at IS NULL))
);

CREATE INDEX lease_live ON dispatcher.lease (last_heard_at, created_at) WHERE ended_at IS NULL;

-- One row for each run.
CREATE TABLE dispatcher.metadata (
    run_id          uuid PRIMARY KEY,
    work_id         uuid NOT NULL REFERENCES dispatcher.work_queue (id),
    lease_id        uuid NOT NULL REFERENCES dispatcher.lease (id),
    manifest_id     uuid,
    group_name      text NOT NULL,
    job             text NOT NULL,
    round           integer NOT NULL,
    attempt         integer NOT NULL,
    state           text NOT NULL
                    CHECK (state IN ('pending', 'in_progress', 'completed', 'failed', 'cancelled')),
    worker          text,
    host            text,
    due_at          timestamptz,
    created_at      timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz,
    -- When the run must have ended, its grace included, once it has begun.
    patience_seconds double precision NOT NULL,
    failure         jsonb,
    output          jsonb,
    cancel_reason   text,
    trace_id        text,
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (state <> 'in_progress' OR started_at IS NOT NULL),
    CHECK ((state = 'failed') = (failure IS NOT NULL))
);

CREATE INDEX metadata_active ON dispatcher.metadata (group_name, job, lease_id)
    WHERE state IN ('pending', 'in_progress');
CREATE UNIQUE INDEX metadata_one_live ON dispatcher.metadata (work_id)
    WHERE state IN ('pending', 'in_progress');
CREATE INDEX metadata_lease ON dispatcher.metadata (lease_id);

CREATE TABLE dispatcher.dead_letter (
    id          uuid PRIMARY KEY,
    work_id     uuid NOT NULL REFERENCES dispatcher.work_queue (id),
    round       integer NOT NULL,
    manifest_id uuid,
    group_name  text NOT NULL,
    job         text NOT NULL,
    input       jsonb,
    reason      text NOT NULL,
    failure     jsonb NOT NULL,
    attempts    integer NOT NULL,
    state       text NOT NULL CHECK (state IN ('awaiting', 'retried', 'acknowledged')),
    created_at  timestamptz NOT NULL,
    resolved_at timestamptz,
    note        text,
    actor       text,
    CHECK ((state = 'awaiting') = (resolved_at IS NULL))
);

CREATE UNIQUE INDEX dead_letter_one_awaiting ON dispatcher.dead_letter (work_id)
    WHERE state = 'awaiting';

CREATE TABLE dispatcher.worker (
    name          text PRIMARY KEY,
    nonce         text NOT NULL,
    host          text NOT NULL,
    sdk           text NOT NULL,
    sdk_version   text NOT NULL,
    jobs          text[] NOT NULL,
    slots         integer NOT NULL,
    draining      boolean NOT NULL,
    first_heard_at timestamptz NOT NULL,
    last_heard_at timestamptz NOT NULL
);

-- The dispatchers' own heartbeats, sent through NATS like anybody's: proof that a worker
-- that was not heard could have been.
CREATE TABLE dispatcher.witness (
    name          text PRIMARY KEY,
    heard_since   timestamptz NOT NULL,
    last_heard_at timestamptz NOT NULL
);

CREATE TABLE dispatcher.history (
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
    recorded_at timestamptz NOT NULL,
    CHECK (accepted = (refusal IS NULL))
);

CREATE INDEX history_run ON dispatcher.history (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX history_lease ON dispatcher.history (lease_id) WHERE lease_id IS NOT NULL;

-- Ids of events that were applied, so that a second delivery changes nothing. An event's id
-- is its publisher's choice, and so is unique only within its lease.
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
    body        bytea NOT NULL,
    traceparent text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Messages that could not be read or handled, with their bytes.
CREATE TABLE dispatcher.rejected (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject     text NOT NULL,
    headers     jsonb NOT NULL,
    body        bytea NOT NULL,
    reason      text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
