-- Both histories have the same columns, because one library writes them.

ALTER TABLE scheduler.history ADD COLUMN work_id uuid;
