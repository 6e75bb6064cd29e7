-- A timer of a team is a row of each paired server that shows it. `team` has the SteamIDs of the leader and then of all members, as
-- they were last known, with commas between them.
CREATE TABLE timers_of_mates (
    id TEXT NOT NULL,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    ends_at TIMESTAMP NOT NULL,
    team TEXT,
    PRIMARY KEY (id, server_id)
);
INSERT INTO timers_of_mates (id, server_id, number, text, created_at, ends_at)
    SELECT id, server_id, number, text, created_at, ends_at FROM team_timers;
DROP TABLE team_timers;
ALTER TABLE timers_of_mates RENAME TO team_timers;
CREATE INDEX team_timers_server_id ON team_timers (server_id);
