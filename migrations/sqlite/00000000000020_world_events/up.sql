-- World events belong to the game server, however many have paired it; everything else to a paired server, or to a user.
CREATE TABLE happenings (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE,
    game_server_id TEXT,
    kind TEXT NOT NULL,
    action TEXT NOT NULL,
    ts TIMESTAMP NOT NULL,
    grid TEXT NOT NULL,
    x DOUBLE PRECISION,
    y DOUBLE PRECISION,
    title TEXT NOT NULL,
    -- JSON
    data TEXT NOT NULL
);
INSERT INTO happenings (id, user_id, server_id, kind, action, ts, grid, title, data)
    SELECT id, user_id, server_id, kind, 'pushed', ts, '', title, json_object('message', message) FROM timeline;
DROP TABLE timeline;
ALTER TABLE happenings RENAME TO timeline;
CREATE INDEX timeline_of_server ON timeline (server_id, ts, id);
CREATE INDEX timeline_of_server_by_kind ON timeline (server_id, kind, ts, id);
CREATE INDEX timeline_of_game_server ON timeline (game_server_id, ts, id);
CREATE INDEX timeline_of_game_server_by_kind ON timeline (game_server_id, kind, ts, id);
CREATE INDEX timeline_user_id ON timeline (user_id);
CREATE INDEX timeline_ts ON timeline (ts);
CREATE INDEX incidents_first_at ON incidents (server_id, first_at, id);
