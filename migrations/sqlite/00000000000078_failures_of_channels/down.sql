ALTER TABLE channels DROP COLUMN failures;
