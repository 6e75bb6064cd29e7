CREATE TABLE failed_pushes (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    push_id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    content TEXT NOT NULL,
    failed_at TIMESTAMP NOT NULL,
    dead BOOLEAN NOT NULL,
    PRIMARY KEY (user_id, push_id)
);
CREATE INDEX failed_pushes_failed_at ON failed_pushes (failed_at);
