CREATE TABLE timers_of_one (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    ends_at TIMESTAMP NOT NULL
);
INSERT INTO timers_of_one (id, server_id, number, text, created_at, ends_at)
    SELECT id, server_id, number, text, created_at, ends_at FROM team_timers
    WHERE server_id = (SELECT MIN(mates.server_id) FROM team_timers AS mates WHERE mates.id = team_timers.id);
DROP TABLE team_timers;
ALTER TABLE timers_of_one RENAME TO team_timers;
CREATE INDEX team_timers_server_id ON team_timers (server_id);
