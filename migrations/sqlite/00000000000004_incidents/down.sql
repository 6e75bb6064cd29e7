ALTER TABLE smart_devices DROP COLUMN last_value;
ALTER TABLE alarms DROP COLUMN sent_at;
ALTER TABLE alarms ADD COLUMN sockets BIGINT;
DROP TABLE incident_acks;
DROP TABLE incidents;
