-- Applications and the source that declares them.

ALTER TABLE scheduler.application
    -- Code: a process that declares it at its start. Files: definitions that a person applied.
    ADD COLUMN source text NOT NULL DEFAULT 'code' CHECK (source IN ('code', 'files')),
    -- Who declared it last, as the audit calls its sources.
    ADD COLUMN declared_by text NOT NULL DEFAULT '';

-- So far only the audit of the manifests tells who declared them last.
UPDATE scheduler.application
SET declared_by = coalesce(last.source, 'app/' || application.name),
    source = CASE WHEN last.source LIKE 'operator/%' THEN 'files' ELSE 'code' END
FROM scheduler.application AS known
LEFT JOIN LATERAL (
    SELECT history.source
    FROM scheduler.manifest
    JOIN scheduler.history ON history.subject = manifest.external_id
    WHERE manifest.owner = known.name AND history.type = 'headway.manifest.declared.v1'
    ORDER BY history.id DESC
    LIMIT 1
) AS last ON true
WHERE known.name = application.name;

ALTER TABLE scheduler.application
    ALTER COLUMN source DROP DEFAULT, ALTER COLUMN declared_by DROP DEFAULT;
