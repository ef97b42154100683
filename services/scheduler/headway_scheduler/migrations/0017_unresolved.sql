-- Dead letters of manifests that nobody has seen to, as far as we have heard: those that block and
-- those that do not. They are asked about, because word of what became of them may be lost.
CREATE TABLE scheduler.unresolved (
    dead_letter uuid PRIMARY KEY,
    manifest_id uuid NOT NULL REFERENCES scheduler.manifest (id) ON DELETE CASCADE
);

CREATE INDEX unresolved_manifest ON scheduler.unresolved (manifest_id);

-- Of those that did not block so far nothing was kept.
INSERT INTO scheduler.unresolved (dead_letter, manifest_id)
SELECT letter.id, manifest.id
FROM scheduler.manifest CROSS JOIN LATERAL unnest(manifest.dead_letters) AS letter (id)
ON CONFLICT DO NOTHING;
