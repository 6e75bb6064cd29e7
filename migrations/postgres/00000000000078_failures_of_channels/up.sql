-- Failures in a row of a channel: a day without success disables it only after a number of them.
ALTER TABLE channels ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
