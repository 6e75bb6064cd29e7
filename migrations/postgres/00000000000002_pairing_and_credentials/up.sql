CREATE TABLE pairing_codes (
    code TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    label TEXT,
    created_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX pairing_codes_user_id ON pairing_codes (user_id);
CREATE INDEX pairing_codes_expires_at ON pairing_codes (expires_at);

CREATE TABLE helper_devices (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    token_hash TEXT NOT NULL,
    label TEXT,
    created_at TIMESTAMP NOT NULL,
    last_used_at TIMESTAMP
);
CREATE UNIQUE INDEX helper_devices_token_hash ON helper_devices (token_hash);
CREATE INDEX helper_devices_user_id ON helper_devices (user_id);

CREATE TABLE encryption_keys (
    number INTEGER NOT NULL PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    first_seen_at TIMESTAMP NOT NULL
);
CREATE UNIQUE INDEX encryption_keys_fingerprint ON encryption_keys (fingerprint);

CREATE TABLE push_credentials (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    sealed BYTEA NOT NULL,
    key_version INTEGER NOT NULL,
    uploaded_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP NOT NULL,
    proven_at TIMESTAMP,
    staged_sealed BYTEA,
    staged_key_version INTEGER,
    staged_uploaded_at TIMESTAMP,
    staged_expires_at TIMESTAMP
);

CREATE TABLE push_seen (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    persistent_id TEXT NOT NULL,
    received_at TIMESTAMP NOT NULL,
    PRIMARY KEY (user_id, persistent_id)
);
CREATE INDEX push_seen_received_at ON push_seen (received_at);

-- 0: sealed before keys were numbered.
ALTER TABLE paired_servers ADD COLUMN key_version INTEGER NOT NULL DEFAULT 0;
