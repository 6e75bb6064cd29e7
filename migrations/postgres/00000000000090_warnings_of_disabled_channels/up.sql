-- When the user of a channel that was switched off is warned of it by their others; null: nothing is due.
ALTER TABLE channels ADD COLUMN warn_at TIMESTAMP;
CREATE INDEX channels_warn_at ON channels (warn_at);
