ALTER TABLE paired_servers DROP COLUMN paired_at;
