DROP INDEX helper_devices_warn_at;
ALTER TABLE helper_devices DROP COLUMN warn_at;
ALTER TABLE helper_devices DROP COLUMN seen_at;
