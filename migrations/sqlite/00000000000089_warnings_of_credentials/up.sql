-- When the owner of a push credential is warned next of its end by channels; null: as soon as a warning is due.
ALTER TABLE push_credentials ADD COLUMN warn_at TIMESTAMP;
CREATE INDEX push_credentials_expires_at ON push_credentials (expires_at);
