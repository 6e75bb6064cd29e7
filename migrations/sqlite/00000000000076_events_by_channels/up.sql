-- A notice of an event that is no raid has all of it here, as JSON; NULL: a raid.
ALTER TABLE notices ADD COLUMN event TEXT;
-- Messages about raids are sent before all others.
ALTER TABLE deliveries ADD COLUMN urgent BOOLEAN NOT NULL DEFAULT TRUE;
