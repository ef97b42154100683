-- Triggers that say how late they may begin.

ALTER TABLE scheduler.occurrence
    -- In place of what its manifest says.
    ADD COLUMN start_within_seconds double precision CHECK (start_within_seconds > 0);
