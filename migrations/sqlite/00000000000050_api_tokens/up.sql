-- A user's tokens for programs, hashed. With a server: for that one only, and gone with it.
CREATE TABLE api_tokens (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    token_hash TEXT NOT NULL,
    label TEXT NOT NULL,
    scopes TEXT NOT NULL,
    server_id TEXT REFERENCES paired_servers (id) ON DELETE CASCADE,
    created_at TIMESTAMP NOT NULL,
    expires_at TIMESTAMP,
    last_used_at TIMESTAMP
);
CREATE UNIQUE INDEX api_tokens_token_hash ON api_tokens (token_hash);
CREATE INDEX api_tokens_user_id ON api_tokens (user_id);
CREATE INDEX api_tokens_server_id ON api_tokens (server_id);
