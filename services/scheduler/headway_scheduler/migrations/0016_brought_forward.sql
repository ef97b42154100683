-- Triggers that made no work, but brought some forward: which, so that the same key names it again.

ALTER TABLE scheduler.occurrence
    -- The work that came first instead.
    ADD COLUMN brought_forward uuid CHECK (brought_forward IS NULL OR decision = 'skipped');
