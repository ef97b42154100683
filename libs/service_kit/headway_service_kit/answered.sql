-- name: lock
-- Lock a key until the end of the transaction. $1 the key with its kind.
SELECT pg_advisory_xact_lock(hashtextextended($1, 7))

-- name: lookup
-- Read the answer of a key. $1 kind of request, $2 key.
SELECT print, answer, answered_at FROM {schema}.answered WHERE kind = $1 AND key = $2

-- name: store
-- Store an answer. $1 kind of request, $2 key, $3 digest of the parameters, $4 answer, $5 now.
INSERT INTO {schema}.answered (kind, key, print, answer, answered_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (kind, key) DO NOTHING

-- name: purge
-- Delete old answers. $1 answered before, $2 batch size.
DELETE FROM {schema}.answered
WHERE (kind, key) IN (
    SELECT kind, key FROM {schema}.answered WHERE answered_at < $1 ORDER BY answered_at LIMIT $2)
