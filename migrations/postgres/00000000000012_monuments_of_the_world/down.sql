ALTER TABLE paired_servers DROP COLUMN monuments;
