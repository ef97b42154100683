-- Ownership per field: of the retry policy of a manifest, and of the settings of a group.

-- An operator owns attempts and interval apart from each other, and nothing else of the policy.
-- The empty hash lets the next declaration write the rest of the policy as the code states it.
UPDATE scheduler.manifest
SET touched = array_remove(touched, 'retry') || '{attempts,interval}'::text[], definition_hash = ''
WHERE 'retry' = ANY(touched);

-- `declared` names for each field the value that code states and the application that states it:
-- {"max_active": {"value": 3, "app": "billing"}}. Values in force that no operator set are
-- attributed to the application that changed the group last.
UPDATE scheduler.manifest_group AS known
SET declared = coalesce((
    SELECT jsonb_object_agg(field, jsonb_build_object('value', value, 'app', known.owner))
    FROM (VALUES ('max_active', to_jsonb(known.max_active)),
                 ('priority', nullif(to_jsonb(known.priority), '0')),
                 ('enabled', nullif(to_jsonb(known.enabled), 'true')),
                 ('rate', known.rate)) AS in_force (field, in_force)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN field = ANY(known.touched) THEN known.declared -> field
                    ELSE in_force END AS value
    ) AS stated
    WHERE value IS NOT NULL AND known.owner IS NOT NULL), '{}');

-- Groups that were deleted, so that a deletion of which the message was lost is announced again.
CREATE TABLE scheduler.deleted_group (
    name       text PRIMARY KEY,
    version    bigint NOT NULL DEFAULT nextval('scheduler.group_version'),
    changed_at timestamptz NOT NULL
);
