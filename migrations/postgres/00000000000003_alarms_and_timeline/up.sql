CREATE TABLE alarms (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    alarm_id TEXT NOT NULL,
    title TEXT NOT NULL,
    message TEXT NOT NULL,
    received_at TIMESTAMP NOT NULL,
    state TEXT NOT NULL,
    incident TEXT,
    sockets BIGINT,
    finished_at TIMESTAMP
);
CREATE INDEX alarms_server_id ON alarms (server_id, finished_at);
CREATE INDEX alarms_incident ON alarms (incident);
CREATE INDEX alarms_finished_at ON alarms (finished_at);

CREATE TABLE timeline (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    ts TIMESTAMP NOT NULL,
    title TEXT NOT NULL,
    message TEXT NOT NULL
);
CREATE INDEX timeline_server_id ON timeline (server_id, ts);
CREATE INDEX timeline_user_id ON timeline (user_id, ts);
