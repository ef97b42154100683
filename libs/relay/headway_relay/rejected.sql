-- name: add
-- Keep a message that could not be handled. $1 subject, $2 headers, $3 body, $4 reason.
INSERT INTO {schema}.rejected (subject, headers, body, reason) VALUES ($1, $2, $3, $4)
