-- What operators decide: whether a dead letter blocks, and how urgent a trigger is.

ALTER TABLE scheduler.manifest
    ADD COLUMN on_dead_letter text NOT NULL DEFAULT 'block'
        CHECK (on_dead_letter IN ('block', 'go_on'));

ALTER TABLE scheduler.occurrence
    -- The priority of a trigger that named one, in place of its manifest's.
    ADD COLUMN priority smallint CHECK (priority BETWEEN 0 AND 31);
