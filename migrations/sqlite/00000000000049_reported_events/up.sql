-- Whether the game server reports its events, as `available` says of its shops; NULL: not known yet.
ALTER TABLE markets ADD COLUMN events_available BOOLEAN;
ALTER TABLE markets ADD COLUMN events_evidence TEXT;
ALTER TABLE markets ADD COLUMN events_as_of TIMESTAMP;
