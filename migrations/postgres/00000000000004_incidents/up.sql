CREATE TABLE incidents (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    alarm_id TEXT NOT NULL,
    alarm_name TEXT NOT NULL,
    title TEXT,
    x DOUBLE PRECISION,
    y DOUBLE PRECISION,
    grid TEXT NOT NULL,
    first_at TIMESTAMP NOT NULL,
    last_at TIMESTAMP NOT NULL,
    ended_at TIMESTAMP,
    count BIGINT NOT NULL,
    paths TEXT NOT NULL,
    late BOOLEAN NOT NULL,
    drill BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    sockets BIGINT NOT NULL,
    heard_at TIMESTAMP
);
CREATE INDEX incidents_server_id ON incidents (server_id, id);
CREATE INDEX incidents_state ON incidents (state, last_at);
CREATE INDEX incidents_last_at ON incidents (last_at);

CREATE TABLE incident_acks (
    incident_id TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    at TIMESTAMP NOT NULL,
    PRIMARY KEY (incident_id, user_id)
);
CREATE INDEX incident_acks_user_id ON incident_acks (user_id);

INSERT INTO incidents (id, server_id, alarm_id, alarm_name, grid, first_at, last_at, ended_at, count, paths, late, drill,
    state, sockets, heard_at)
SELECT incident, server_id, CASE WHEN alarm_id = '' THEN 'push:' || title ELSE alarm_id END, title, '',
    received_at, received_at, received_at,
    (SELECT count(*) FROM alarms AS part WHERE part.incident = alarms.incident), path, FALSE, path = 'drill',
    CASE WHEN sockets > 0 THEN 'delivered' ELSE 'expired' END, coalesce(sockets, 0),
    CASE WHEN sockets > 0 THEN finished_at END
FROM alarms WHERE state = 'opened' AND incident IS NOT NULL AND server_id IS NOT NULL;

UPDATE alarms SET finished_at = received_at WHERE finished_at IS NULL AND incident IS NOT NULL;
UPDATE alarms SET state = 'unmatched' WHERE state = 'late';
ALTER TABLE alarms DROP COLUMN sockets;
ALTER TABLE alarms ADD COLUMN sent_at TIMESTAMP;

ALTER TABLE smart_devices ADD COLUMN last_value BOOLEAN;
