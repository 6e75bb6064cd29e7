-- An alarm that is said in the team's chat, once for each incident. `state` is queued, accepted (the game server took the
-- line), failed or superseded (another user of the team said it).
CREATE TABLE spoken_alarms (
    incident_id TEXT NOT NULL,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    reason TEXT,
    queued_at TIMESTAMP NOT NULL,
    ended_at TIMESTAMP,
    PRIMARY KEY (incident_id, server_id)
);
CREATE INDEX spoken_alarms_server_id ON spoken_alarms (server_id, queued_at);
CREATE INDEX spoken_alarms_queued_at ON spoken_alarms (queued_at);
