CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    platform_id TEXT NOT NULL,
    display_name TEXT NOT NULL,
    avatar_url TEXT,
    created_at TIMESTAMP NOT NULL,
    last_seen_at TIMESTAMP NOT NULL
);
CREATE UNIQUE INDEX users_platform_id ON users (platform_id);

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at TIMESTAMP NOT NULL,
    last_seen_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX sessions_user_id ON sessions (user_id);
CREATE INDEX sessions_expires_at ON sessions (expires_at);

CREATE TABLE sign_in_attempts (
    state_hash TEXT NOT NULL PRIMARY KEY,
    return_target TEXT NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX sign_in_attempts_expires_at ON sign_in_attempts (expires_at);

CREATE TABLE openid_nonces (
    endpoint TEXT NOT NULL,
    nonce TEXT NOT NULL,
    seen_at TIMESTAMP NOT NULL,
    PRIMARY KEY (endpoint, nonce)
);
CREATE INDEX openid_nonces_seen_at ON openid_nonces (seen_at);

CREATE TABLE paired_servers (
    id TEXT NOT NULL PRIMARY KEY,
    owner_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    game_server_id TEXT,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    player_id TEXT NOT NULL,
    player_token_sealed BLOB NOT NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL,
    wipe_time BIGINT,
    seed BIGINT,
    salt BIGINT,
    map_size BIGINT,
    level_name TEXT
);
CREATE UNIQUE INDEX paired_servers_game_server_id ON paired_servers (owner_id, game_server_id);
CREATE UNIQUE INDEX paired_servers_address ON paired_servers (owner_id, address, port, player_id);

CREATE TABLE smart_devices (
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    device_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    label TEXT,
    custom_command TEXT,
    on_message TEXT,
    off_message TEXT,
    created_at TIMESTAMP NOT NULL,
    PRIMARY KEY (server_id, device_id)
);
