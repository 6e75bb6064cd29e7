-- Scheme, host and port of a channel's URL: what asks for a pause there, or does not answer. The port of channels of before is not
-- known, but for the usual one.
ALTER TABLE channels ADD COLUMN origin TEXT NOT NULL DEFAULT '';
UPDATE channels SET origin = 'https://' || host;
