-- What went wrong in a group, found without going through all that went well in it.
CREATE INDEX metadata_unhappy_group ON dispatcher.metadata (group_name, state, created_at, run_id)
    WHERE state IN ('failed', 'cancelled');
