-- What the scheduler owns. Written by the scheduler alone.

CREATE TABLE scheduler.manifest_group (
    name       text PRIMARY KEY,
    max_active integer CHECK (max_active >= 0),
    priority   smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 31),
    enabled    boolean NOT NULL DEFAULT true,
    version    bigint NOT NULL DEFAULT 1,
    changed_at timestamptz NOT NULL
);

CREATE TABLE scheduler.job (
    name         text PRIMARY KEY,
    owner        text NOT NULL,
    description  text NOT NULL,
    input_schema jsonb,
    declared_at  timestamptz NOT NULL
);

CREATE TABLE scheduler.manifest (
    id                 uuid PRIMARY KEY,
    external_id        text NOT NULL UNIQUE,
    owner              text NOT NULL,
    job                text NOT NULL,
    group_name         text NOT NULL REFERENCES scheduler.manifest_group (name),
    input              jsonb,
    cadence            jsonb NOT NULL,
    zone               text NOT NULL,
    priority           smallint NOT NULL CHECK (priority BETWEEN 0 AND 31),
    retry              jsonb NOT NULL,
    timeout_seconds    double precision NOT NULL CHECK (timeout_seconds > 0),
    cancel_grace_seconds double precision NOT NULL CHECK (cancel_grace_seconds >= 0),
    on_lost_contact    text NOT NULL CHECK (on_lost_contact IN ('stop', 'continue')),
    enabled            boolean NOT NULL DEFAULT true,
    definition_hash    text NOT NULL,
    next_due_at        timestamptz,
    blocked_by         uuid,
    success_number     bigint NOT NULL DEFAULT 0,
    last_outcome       text,
    last_settled_at    timestamptz,
    last_success_at    timestamptz,
    declared_at        timestamptz NOT NULL,
    -- Set when its owner no longer declares it: it keeps its record and never fires.
    undeclared_at      timestamptz
);

CREATE INDEX manifest_due ON scheduler.manifest (next_due_at)
    WHERE enabled AND undeclared_at IS NULL AND next_due_at IS NOT NULL;
CREATE INDEX manifest_owner ON scheduler.manifest (owner);

-- The ledger: one decision for each occurrence, or for a stretch decided together.
CREATE TABLE scheduler.occurrence (
    manifest_id uuid NOT NULL REFERENCES scheduler.manifest (id),
    cause       text NOT NULL,
    first_due_at timestamptz NOT NULL,
    last_due_at  timestamptz NOT NULL,
    decision    text NOT NULL CHECK (decision IN ('queued', 'skipped')),
    reason      text,
    work_id     uuid,
    outcome     text,
    decided_at  timestamptz NOT NULL,
    PRIMARY KEY (manifest_id, cause),
    CHECK ((decision = 'queued') = (work_id IS NOT NULL)),
    CHECK ((decision = 'skipped') = (reason IS NOT NULL)),
    CHECK (first_due_at <= last_due_at)
);

-- Everything queued and not settled.
CREATE TABLE scheduler.work (
    id           uuid PRIMARY KEY,
    manifest_id  uuid REFERENCES scheduler.manifest (id),
    cause        text NOT NULL,
    round        integer NOT NULL DEFAULT 1,
    queued_at    timestamptz NOT NULL
);

CREATE INDEX work_manifest ON scheduler.work (manifest_id);

-- Who ticked last. The epoch rises whenever another process takes over.
CREATE TABLE scheduler.leader (
    name       text PRIMARY KEY,
    epoch      bigint NOT NULL,
    holder     text NOT NULL,
    since      timestamptz NOT NULL
);

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
    recorded_at timestamptz NOT NULL,
    CHECK (accepted = (refusal IS NULL))
);

CREATE TABLE scheduler.outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  text NOT NULL,
    subject     text NOT NULL,
    body        bytea NOT NULL,
    traceparent text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Messages that could not be read or handled, with their bytes.
CREATE TABLE scheduler.rejected (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject     text NOT NULL,
    headers     jsonb NOT NULL,
    body        bytea NOT NULL,
    reason      text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
