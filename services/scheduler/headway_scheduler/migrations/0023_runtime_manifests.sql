-- Terms of manifests made at run time; backfills.

ALTER TABLE scheduler.manifest
    -- The definition as it was sent, of a manifest that takes terms from its job: they are resolved
    -- again when the job is declared differently. Null where the definition states all.
    ADD COLUMN sent jsonb;

CREATE INDEX manifest_inherits ON scheduler.manifest (job) WHERE sent IS NOT NULL;
