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

-- Limits that operators give, beside what the code says: what they give back is the code's at once.
ALTER TABLE scheduler.job
    -- `max_active` and `rate`, where an operator has set them; null there lifts the limit.
    ADD COLUMN operator_limits jsonb NOT NULL DEFAULT '{}';

ALTER TABLE scheduler.manifest_group
    -- What the code last said of it.
    ADD COLUMN declared jsonb NOT NULL DEFAULT '{}';

UPDATE scheduler.manifest_group
SET declared = jsonb_strip_nulls(jsonb_build_object(
    'max_active', CASE WHEN 'max_active' = ANY(touched) THEN NULL ELSE max_active END,
    'priority', CASE WHEN 'priority' = ANY(touched) THEN NULL ELSE priority END,
    'enabled', CASE WHEN 'enabled' = ANY(touched) THEN NULL ELSE enabled END,
    'rate', CASE WHEN 'rate' = ANY(touched) THEN NULL ELSE rate END));
