-- name: pulse
-- The newest number of the scheduler's history, and its last tick that had something to do.
SELECT coalesce((SELECT id FROM scheduler.history ORDER BY id DESC LIMIT 1), 0) AS decided,
       (SELECT ticked_at FROM scheduler.leader WHERE name = 'tick') AS ticked_at
