-- Every cadence and policy, a ledger in stretches, dependents, pruning, operators' settings.

-- Versions of group settings rise over all groups: a group that is deleted and made again
-- must not look older to the dispatcher than it did before.
CREATE SEQUENCE scheduler.group_version;
SELECT setval('scheduler.group_version',
              1 + coalesce((SELECT max(version) FROM scheduler.manifest_group), 0));

ALTER TABLE scheduler.manifest_group
    ADD COLUMN owner text,
    -- The settings that an operator has changed: code no longer writes them.
    ADD COLUMN touched text[] NOT NULL DEFAULT '{}',
    ALTER COLUMN version SET DEFAULT nextval('scheduler.group_version');

ALTER TABLE scheduler.job
    ADD COLUMN title text NOT NULL DEFAULT '',
    ADD COLUMN category text NOT NULL DEFAULT '',
    ADD COLUMN takes_input boolean NOT NULL DEFAULT true;

-- Which generation of an application declared last.
CREATE TABLE scheduler.application (
    name        text PRIMARY KEY,
    generation  bigint NOT NULL CHECK (generation >= 0),
    declared_at timestamptz NOT NULL
);

ALTER TABLE scheduler.manifest
    ADD COLUMN timing          jsonb,
    ADD COLUMN misfire         jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN overlap         jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN jitter_seconds  double precision NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0),
    ADD COLUMN depends_on      uuid REFERENCES scheduler.manifest (id) ON DELETE SET NULL,
    ADD COLUMN dormant         boolean NOT NULL DEFAULT false,
    ADD COLUMN batch           text,
    -- Which success of its parent a dependent has decided about last.
    ADD COLUMN seen_success    bigint NOT NULL DEFAULT 0,
    -- Who disabled it: the code, an operator, itself (a one-shot), or a start that no longer
    -- declared it.
    ADD COLUMN disabled_by     text CHECK (disabled_by IN ('code', 'operator', 'once', 'pruned')),
    ADD COLUMN touched         text[] NOT NULL DEFAULT '{}',
    -- When the tick has to look at it. Null while nothing can happen: it is disabled, blocked,
    -- has work under way that leaves no room, or has no due time at all.
    ADD COLUMN wake_at         timestamptz,
    -- Dead letters that block it, the oldest first.
    ADD COLUMN dead_letters    uuid[] NOT NULL DEFAULT '{}',
    -- What keeps the tick from judging it, such as a zone that this machine does not know.
    ADD COLUMN trouble         text,
    ADD COLUMN pruning_at      timestamptz,
    ADD COLUMN prune_asked_at  timestamptz;

UPDATE scheduler.manifest
SET dead_letters = CASE WHEN blocked_by IS NULL THEN '{}' ELSE ARRAY[blocked_by] END,
    timing = jsonb_build_object('cadence', cadence, 'zone', zone),
    enabled = enabled AND undeclared_at IS NULL,
    disabled_by = CASE WHEN NOT enabled THEN 'operator'
                       WHEN undeclared_at IS NOT NULL THEN 'pruned' END,
    touched = CASE WHEN NOT enabled THEN ARRAY['enabled'] ELSE '{}' END;

DROP INDEX scheduler.manifest_due;
DROP INDEX scheduler.manifest_owner;
ALTER TABLE scheduler.manifest
    ALTER COLUMN timing SET NOT NULL,
    DROP COLUMN cadence,
    DROP COLUMN zone,
    DROP COLUMN blocked_by,
    ADD COLUMN blocked_by uuid GENERATED ALWAYS AS (dead_letters[1]) STORED,
    DROP CONSTRAINT manifest_external_id_key,
    ADD CONSTRAINT manifest_enabled_says_by_whom CHECK (enabled = (disabled_by IS NULL)),
    -- The front of the due index is rewritten all the time: keep room on the page, vacuum often.
    SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- The manifests that are awake; what sleeps is not in it, however long it is past due.
UPDATE scheduler.manifest SET wake_at = next_due_at
WHERE enabled AND blocked_by IS NULL
  AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.manifest_id = manifest.id);
CREATE INDEX manifest_wake ON scheduler.manifest (wake_at) INCLUDE (id) WHERE wake_at IS NOT NULL;
CREATE INDEX manifest_group_wake ON scheduler.manifest (group_name, wake_at) INCLUDE (id)
    WHERE wake_at IS NOT NULL;
CREATE UNIQUE INDEX manifest_external_id ON scheduler.manifest (external_id)
    WHERE pruning_at IS NULL;
CREATE INDEX manifest_owner ON scheduler.manifest (owner, batch);
CREATE INDEX manifest_parent ON scheduler.manifest (depends_on) WHERE depends_on IS NOT NULL;
CREATE INDEX manifest_pruning ON scheduler.manifest (pruning_at) WHERE pruning_at IS NOT NULL;

-- When a manifest fired by which timing: what should have fired can be told afterwards.
CREATE TABLE scheduler.timing (
    manifest_id    uuid NOT NULL REFERENCES scheduler.manifest (id),
    since          timestamptz NOT NULL,
    timing         jsonb NOT NULL,
    PRIMARY KEY (manifest_id, since)
);
INSERT INTO scheduler.timing (manifest_id, since, timing)
SELECT id, declared_at, timing FROM scheduler.manifest;

ALTER TABLE scheduler.occurrence
    DROP CONSTRAINT occurrence_decision_check,
    DROP CONSTRAINT occurrence_check,
    DROP CONSTRAINT occurrence_check1,
    -- Decisions are written under the lock on their manifest and deleted before it, so the check
    -- of every row against it, the dearest part of a tick, proves nothing new.
    DROP CONSTRAINT occurrence_manifest_id_fkey,
    -- Owed: decided, and waiting for room; its input, if it has one of its own, waits with it.
    ADD CONSTRAINT occurrence_decision CHECK (decision IN ('queued', 'skipped', 'owed')),
    ADD CONSTRAINT occurrence_work CHECK ((decision = 'queued') = (work_id IS NOT NULL)),
    ADD CONSTRAINT occurrence_reason CHECK ((decision = 'queued') = (reason IS NULL)),
    -- The last round of its work that was told as settled: what is told again changes nothing.
    ADD COLUMN settled_round integer NOT NULL DEFAULT 0,
    ADD COLUMN actor text,
    ADD COLUMN explicit boolean NOT NULL DEFAULT false,
    ADD COLUMN has_input boolean NOT NULL DEFAULT false,
    ADD COLUMN input jsonb,
    ADD COLUMN not_before timestamptz;

CREATE INDEX occurrence_owed ON scheduler.occurrence (manifest_id, decided_at, first_due_at)
    WHERE decision = 'owed';
CREATE INDEX occurrence_time ON scheduler.occurrence (manifest_id, first_due_at);
-- Written in the order of time and read only to be deleted: a coarse index will do.
CREATE INDEX occurrence_decided ON scheduler.occurrence USING brin (decided_at);
CREATE INDEX history_subject ON scheduler.history (subject, id);
CREATE INDEX history_recorded ON scheduler.history USING brin (recorded_at);

-- Dead letters that were seen to; the outcome that tells of one may come after its resolution.
CREATE TABLE scheduler.resolved (
    dead_letter uuid PRIMARY KEY,
    resolved_at timestamptz NOT NULL
);

ALTER TABLE scheduler.work ADD COLUMN slot integer NOT NULL DEFAULT 0;

-- Rows come and go all the time here, so a share of the table is no measure for when to tidy up.
ALTER TABLE scheduler.work
    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- Messages live for milliseconds: compressing them costs more than it saves.
ALTER TABLE scheduler.outbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE scheduler.outbox
    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
