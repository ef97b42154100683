-- Windows in which manifests do not fire, and what comes due waits for their end.

ALTER TABLE scheduler.manifest
    -- The last window: until it is resumed the manifest is paused. What came due in it is decided
    -- after that, and tells of it.
    ADD COLUMN paused_at    timestamptz,
    ADD COLUMN resumed_at   timestamptz,
    -- When the window ends by itself.
    ADD COLUMN paused_until timestamptz,
    ADD COLUMN pause_reason text NOT NULL DEFAULT '',
    ADD COLUMN paused_by    text,
    ADD CHECK (paused_at IS NOT NULL OR resumed_at IS NULL),
    ADD CHECK (paused_until IS NULL OR (paused_at IS NOT NULL AND resumed_at IS NULL));

CREATE INDEX manifest_paused_until ON scheduler.manifest (paused_until)
    WHERE paused_until IS NOT NULL;
