CREATE TABLE map_notes (
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    -- The user; NULL: the detector of deaths.
    author_id TEXT REFERENCES users (id) ON DELETE SET NULL,
    source TEXT NOT NULL,
    x DOUBLE PRECISION NOT NULL,
    y DOUBLE PRECISION NOT NULL,
    category TEXT NOT NULL,
    label TEXT,
    created_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP,
    PRIMARY KEY (server_id, id)
);
CREATE INDEX map_notes_author_id ON map_notes (author_id);
CREATE INDEX map_notes_expires_at ON map_notes (expires_at);

ALTER TABLE smart_devices ADD COLUMN x DOUBLE PRECISION;
ALTER TABLE smart_devices ADD COLUMN y DOUBLE PRECISION;
