DROP INDEX push_credentials_expires_at;
ALTER TABLE push_credentials DROP COLUMN warn_at;
