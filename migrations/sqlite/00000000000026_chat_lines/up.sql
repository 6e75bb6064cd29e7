-- What a paired server's team said, as its link heard it.
CREATE TABLE chat_lines (
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    -- Follows from who said what when: a line that is heard again is the same
    id TEXT NOT NULL,
    said_at TIMESTAMP NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (server_id, id)
);
CREATE INDEX chat_lines_said ON chat_lines (server_id, said_at, id);
CREATE INDEX chat_lines_said_at ON chat_lines (said_at);
