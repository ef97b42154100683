-- name: canary
-- One canary. $1 id.
SELECT id, fingerprint, actor, began_at, ended_at, awaiting, state, reason, step, steps
FROM dispatcher.canary WHERE id = $1

-- name: latest
-- The latest canary of a failure. $1 fingerprint.
SELECT id, fingerprint, actor, began_at, ended_at, awaiting, state, reason, step, steps
FROM dispatcher.canary WHERE fingerprint = $1 ORDER BY began_at DESC LIMIT 1
