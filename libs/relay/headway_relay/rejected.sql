-- name: add
-- Store a message that could not be handled. $1 subject, $2 headers, $3 body, $4 reason.
INSERT INTO {schema}.rejected (subject, headers, body, reason) VALUES ($1, $2, $3, $4)

-- name: forget
-- Delete the oldest rejected messages. $1 retention, $2 batch size.
DELETE FROM {schema}.rejected
WHERE id IN (
    SELECT id FROM {schema}.rejected
    WHERE rejected_at < statement_timestamp() - $1::interval
    ORDER BY rejected_at LIMIT $2)
