DROP INDEX channels_warn_at;
ALTER TABLE channels DROP COLUMN warn_at;
