ALTER TABLE paired_servers DROP COLUMN accepted_version;
ALTER TABLE paired_servers DROP COLUMN credentials_version;
