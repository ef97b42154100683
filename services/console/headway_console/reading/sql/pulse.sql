-- name: pulse
-- The newest numbers of both histories, and the last tick that had something to do. $1 recorded
-- since, to look into the latest days only.
SELECT coalesce((SELECT id FROM scheduler.history ORDER BY id DESC LIMIT 1), 0) AS decided,
       coalesce((SELECT id FROM dispatcher.history WHERE recorded_at >= $1
                 ORDER BY id DESC LIMIT 1), 0) AS happened,
       (SELECT ticked_at FROM scheduler.leader WHERE name = 'tick') AS ticked_at
