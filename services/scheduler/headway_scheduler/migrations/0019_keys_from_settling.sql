-- A trigger's key is remembered from when what it asked for was settled, as that of enqueued work
-- is. Before, it was from the decision: a trigger whose work waited or ran for longer than that was
-- forgotten the moment it ended, and the same key made work again.

ALTER TABLE scheduler.occurrence
    -- When we last heard that its work has ended, or when what was owed was dropped. What was
    -- settled before this was noted is remembered from its decision on.
    ADD COLUMN settled_at timestamptz
        CONSTRAINT occurrence_settled CHECK (settled_at IS NULL OR decision <> 'owed'),
    -- The cause of another decision of the manifest, for as long as which this one is remembered:
    -- the one under which it is owed again, or whose work it brought forward.
    ADD COLUMN kept_with text;
