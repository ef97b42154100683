-- Telling again what else may be lost on its way to the dispatcher: cancels, and what comes first.

ALTER TABLE scheduler.work
    -- How often it was announced again; the pauses between grow with it, because what is never
    -- taken in is told in vain.
    ADD COLUMN tellings smallint NOT NULL DEFAULT 0 CHECK (tellings >= 0),
    -- When its end was last asked for, and why.
    ADD COLUMN cancel_told_at timestamptz,
    ADD COLUMN cancel_reason text,
    -- When it was last asked to come first.
    ADD COLUMN forward_told_at timestamptz,
    ADD CHECK ((cancel_told_at IS NULL) = (cancel_reason IS NULL));
