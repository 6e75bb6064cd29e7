ALTER TABLE channels DROP COLUMN origin;
