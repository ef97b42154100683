-- name: page
-- Groups by name, with their limits and manifests. $1 names after this one, $2 one group (null for
-- all), $3 limit.
SELECT page.name, manifest_group.max_active, coalesce(manifest_group.priority, 0) AS priority,
       coalesce(manifest_group.enabled, group_limit.enabled, true) AS enabled, manifest_group.rate,
       coalesce(manifest_group.operator_fields, '{}') AS operator_fields, manifest_group.owner,
       coalesce(manifest_group.declared, '{}') AS declared,
       rate_use.frees_at,
       coalesce(counted.manifests, 0) AS manifests, coalesce(counted.disabled, 0) AS disabled,
       coalesce(counted.blocked, 0) AS blocked, counted.next_due_at
FROM (
    SELECT name FROM (
        SELECT name FROM scheduler.manifest_group
        UNION
        SELECT group_name FROM dispatcher.ready_lane
    ) AS known
    WHERE name > $1 AND ($2::text IS NULL OR name = $2)
    ORDER BY name
    LIMIT $3
) AS page
LEFT JOIN scheduler.manifest_group ON manifest_group.name = page.name
LEFT JOIN dispatcher.group_limit ON group_limit.name = page.name
LEFT JOIN dispatcher.rate_use ON rate_use.kind = 'group' AND rate_use.name = page.name
LEFT JOIN (
    SELECT manifest.group_name AS name, count(*) AS manifests,
           count(*) FILTER (WHERE NOT manifest.enabled) AS disabled,
           count(*) FILTER (WHERE manifest.blocked_by IS NOT NULL) AS blocked,
           min(manifest.wake_at) AS next_due_at
    FROM scheduler.manifest
    WHERE manifest.pruning_at IS NULL
    GROUP BY manifest.group_name
) AS counted ON counted.name = page.name
ORDER BY page.name

-- name: active
-- Slots in use, by group: runs of a lease share one.
SELECT unnest(groups) AS group_name, count(*) AS slots
FROM dispatcher.lease
WHERE ended_at IS NULL
GROUP BY 1

-- name: live_runs
-- Runs that have not ended, by group and state.
SELECT work_queue.group_name, coalesce(metadata.state, 'pending') AS state, count(*) AS runs
FROM dispatcher.work_queue
LEFT JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
WHERE work_queue.state = 'dispatched'
GROUP BY 1, 2

-- name: letters
-- Open dead letters by group.
SELECT group_name, count(*) AS letters
FROM dispatcher.dead_letter
WHERE state = 'awaiting'
GROUP BY group_name

-- name: limits
-- The limits of groups that the dispatcher knows.
SELECT name, max_active, enabled FROM dispatcher.group_limit
