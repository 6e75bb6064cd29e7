ALTER TABLE smart_devices DROP COLUMN y;
ALTER TABLE smart_devices DROP COLUMN x;
DROP TABLE map_notes;
