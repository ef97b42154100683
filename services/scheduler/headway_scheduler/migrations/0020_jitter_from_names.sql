-- Jitter is drawn from what a manifest is called, and no longer from its id. The next fire of each
-- was put off by the old draw: look when it is due, and put it off by the new one. A fire that is
-- later than its own draw could be taken for missed.
UPDATE scheduler.manifest SET wake_at = next_due_at
WHERE jitter_seconds > 0 AND wake_at > next_due_at;
