-- name: add
-- Add notifications; an existing one stays as it is. $1 ids, $2 types, $3 subjects, $4 data, $5
-- now.
INSERT INTO scheduler.notification (id, type, subject, data, created_at, next_attempt_at)
SELECT fact.*, $5, $5
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::jsonb[]) AS fact (id, type, subject, data)
ON CONFLICT DO NOTHING

-- name: crowd
-- The first type of which too many notifications wait for their first attempt. $1 type of digests,
-- which are not folded again, $2 how many are allowed.
SELECT type FROM scheduler.notification
WHERE state = 'pending' AND attempts = 0 AND type <> $1
GROUP BY type
HAVING count(*) > $2
ORDER BY type
LIMIT 1

-- name: fold
-- Replace notifications of a type that wait for their first attempt by one digest; no row if other
-- schedulers hold all of them. $1 type, $2 id of the digest, $3 type of digests, $4 how many to
-- fold, $5 how many subjects to name, $6 now.
WITH crowd AS MATERIALIZED (
    SELECT id, subject, created_at FROM scheduler.notification
    WHERE state = 'pending' AND attempts = 0 AND type = $1
    ORDER BY created_at, id
    LIMIT $4
    FOR UPDATE SKIP LOCKED
), folded AS (
    UPDATE scheduler.notification
    SET state = 'folded', folded_into = $2, finished_at = $6, next_attempt_at = NULL
    FROM crowd
    WHERE notification.id = crowd.id
)
INSERT INTO scheduler.notification (id, type, subject, data, created_at, next_attempt_at)
SELECT $2, $3, $1, jsonb_build_object(
           'of', $1, 'count', count(*), 'first_at', min(created_at), 'last_at', max(created_at),
           'subjects', (SELECT jsonb_agg(first.subject ORDER BY first.subject)
                        FROM (SELECT DISTINCT subject FROM crowd ORDER BY subject LIMIT $5)
                            AS first)),
       $6, $6
FROM crowd
HAVING count(*) > 0
RETURNING true

-- name: claim
-- Claim notifications that are due and count the attempt; other schedulers leave them alone until
-- the end of the attempt. $1 now, $2 end of the attempt, $3 how many.
UPDATE scheduler.notification
SET attempts = notification.attempts + 1, next_attempt_at = $2
FROM (
    SELECT id FROM scheduler.notification
    WHERE state = 'pending' AND next_attempt_at <= $1
    ORDER BY next_attempt_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
) AS due
WHERE notification.id = due.id
RETURNING notification.id, notification.type, notification.subject, notification.data,
          notification.created_at, notification.attempts

-- name: finish
-- Store the outcomes of attempts. $1 ids, $2 states, $3 next attempts (null if none), $4 errors, $5
-- now.
UPDATE scheduler.notification
SET state = ended.state, next_attempt_at = ended.next_attempt_at, last_error = ended.error,
    finished_at = CASE WHEN ended.state <> 'pending' THEN $5::timestamptz END
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[])
    AS ended (id, state, next_attempt_at, error)
WHERE notification.id = ended.id AND notification.state = 'pending'

-- name: next_attempt
-- When the next notification is due, or null.
SELECT min(next_attempt_at) FROM scheduler.notification WHERE state = 'pending'

-- name: forget
-- Delete old notifications, whatever their state. $1 before, $2 how many.
DELETE FROM scheduler.notification
WHERE id IN (SELECT id FROM scheduler.notification WHERE created_at < $1 LIMIT $2)
