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

ALTER TABLE push_credentials ADD COLUMN uploaded_by TEXT;
ALTER TABLE push_credentials ADD COLUMN staged_uploaded_by TEXT;

CREATE TABLE push_refusals (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES push_credentials (user_id) ON DELETE CASCADE,
    uploaded_at TIMESTAMP NOT NULL,
    uploaded_by TEXT,
    reason TEXT NOT NULL,
    refused_at TIMESTAMP NOT NULL,
    dismissed BOOLEAN NOT NULL
);
