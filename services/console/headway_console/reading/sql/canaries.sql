-- name: stages
-- What the dispatcher answered to the retries of a canary, the first of them first. $1 what their
-- keys begin with.
SELECT key, answer, answered_at FROM dispatcher.answered
WHERE kind = 'RetryRequest.LettersChanged' AND starts_with(key, $1)
ORDER BY answered_at, key

-- name: begun
-- Of which failure a canary is, and who began it, by a letter that it has retried. $1 letter.
SELECT fingerprint, code_version, coalesce(actor, retry_asked_by, '') AS actor
FROM dispatcher.dead_letter WHERE id = $1
