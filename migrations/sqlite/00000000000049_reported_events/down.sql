ALTER TABLE markets DROP COLUMN events_as_of;
ALTER TABLE markets DROP COLUMN events_evidence;
ALTER TABLE markets DROP COLUMN events_available;
