-- One account of the chat platform for a user, and one user for an account.
CREATE TABLE chat_links (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    chat_user_id TEXT NOT NULL,
    linked_at TIMESTAMP NOT NULL
);
CREATE UNIQUE INDEX chat_links_chat_user_id ON chat_links (chat_user_id);

-- The code that an account was given last.
CREATE TABLE chat_link_codes (
    chat_user_id TEXT NOT NULL PRIMARY KEY,
    code_hash TEXT NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE UNIQUE INDEX chat_link_codes_code_hash ON chat_link_codes (code_hash);
-- What each minute's purge looks for.
CREATE INDEX chat_link_codes_expires_at ON chat_link_codes (expires_at);
