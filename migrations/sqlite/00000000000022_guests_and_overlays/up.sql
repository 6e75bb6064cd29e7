-- A row is an invitation until a user is in it, and then a guest.
CREATE TABLE guests (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    platform_id TEXT,
    token_hash TEXT,
    label TEXT,
    invited_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP,
    since TIMESTAMP
);
CREATE UNIQUE INDEX guests_server_user ON guests (server_id, user_id);
CREATE UNIQUE INDEX guests_server_platform ON guests (server_id, platform_id);
CREATE UNIQUE INDEX guests_token_hash ON guests (token_hash);
-- The servers of a guest.
CREATE INDEX guests_user_id ON guests (user_id);
-- What a sign-in claims.
CREATE INDEX guests_platform_id ON guests (platform_id);
-- What each minute's purge looks for.
CREATE INDEX guests_expires_at ON guests (expires_at);

-- The one server that an overlay may watch; NULL: a helper.
ALTER TABLE pairing_codes ADD COLUMN server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE;
CREATE INDEX pairing_codes_server_id ON pairing_codes (server_id);
ALTER TABLE helper_devices ADD COLUMN server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE;
CREATE INDEX helper_devices_server_id ON helper_devices (server_id);

-- What every list of servers counts.
CREATE INDEX incidents_open ON incidents (server_id, ended_at);
