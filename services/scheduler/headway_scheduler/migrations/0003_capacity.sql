-- Limits of jobs, rates, concurrency keys, times to start in, switches that are told.

ALTER TABLE scheduler.manifest_group ADD COLUMN rate jsonb;

-- Versions rise over all jobs, and over all manifests, as those of groups do.
CREATE SEQUENCE scheduler.job_version;
CREATE SEQUENCE scheduler.manifest_version;

ALTER TABLE scheduler.job
    ADD COLUMN max_active           integer CHECK (max_active >= 0),
    ADD COLUMN rate                 jsonb,
    ADD COLUMN counts_globally      boolean NOT NULL DEFAULT true,
    ADD COLUMN batch                integer NOT NULL DEFAULT 1 CHECK (batch >= 1),
    -- What its work shares and by when it must start, where no manifest says so.
    ADD COLUMN concurrency_key      text,
    ADD COLUMN concurrency_limit    integer NOT NULL DEFAULT 1 CHECK (concurrency_limit >= 1),
    ADD COLUMN start_within_seconds double precision CHECK (start_within_seconds > 0),
    ADD COLUMN version              bigint NOT NULL DEFAULT nextval('scheduler.job_version');

ALTER TABLE scheduler.manifest
    ADD COLUMN concurrency_key      text,
    ADD COLUMN concurrency_limit    integer NOT NULL DEFAULT 1 CHECK (concurrency_limit >= 1),
    ADD COLUMN start_within_seconds double precision CHECK (start_within_seconds > 0),
    -- What the dispatcher was told last of whether its work may run, and as which version.
    ADD COLUMN told_enabled         boolean NOT NULL DEFAULT true,
    ADD COLUMN version              bigint NOT NULL DEFAULT 0;
