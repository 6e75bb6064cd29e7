DROP INDEX incidents_first_at;
CREATE TABLE happenings (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    ts TIMESTAMP NOT NULL,
    title TEXT NOT NULL,
    message TEXT NOT NULL
);
INSERT INTO happenings (id, user_id, server_id, kind, ts, title, message)
    SELECT id, user_id, server_id, kind, ts, title, coalesce(json_extract(data, '$.message'), '') FROM timeline WHERE user_id IS NOT NULL;
DROP TABLE timeline;
ALTER TABLE happenings RENAME TO timeline;
CREATE INDEX timeline_server_id ON timeline (server_id, ts);
CREATE INDEX timeline_user_id ON timeline (user_id, ts);
CREATE INDEX timeline_ts ON timeline (ts);
