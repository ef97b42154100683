-- Which groups have manifests that are due is read off what is due, in one go and from the index
-- alone; there may be many more groups than those.
CREATE INDEX manifest_awake ON scheduler.manifest (wake_at) INCLUDE (id, group_name)
    WHERE wake_at IS NOT NULL;
DROP INDEX scheduler.manifest_wake;
