-- What the broker's storage may lose, and how that shows.

ALTER TABLE dispatcher.lease
    -- When a heartbeat last named it while its claim was not known here: the claim may be lost,
    -- or not projected yet, but somebody has the lease, and its order must not be given out again.
    ADD COLUMN listed_at timestamptz;

ALTER TABLE dispatcher.metadata
    -- How often its order was found gone, with no claim known, and was put back: its body may
    -- have run before, unseen.
    ADD COLUMN reissued integer NOT NULL DEFAULT 0,
    -- How often a process that does not hold the lease told that it began the body as well.
    ADD COLUMN begun_elsewhere integer NOT NULL DEFAULT 0;
