-- A user's device for the game's pushes that the service registers itself: one for each account, kept while there is a
-- registration. Everything secret is in `sealed`; `step` is the next one, NULL when all are made; `due_at` is when the
-- service goes on by itself, NULL for never.
CREATE TABLE push_registrations (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    renew_asked BOOLEAN NOT NULL,
    renew BOOLEAN NOT NULL,
    closes_at TIMESTAMP NOT NULL,
    step TEXT,
    fault TEXT,
    answer TEXT,
    failures INTEGER NOT NULL,
    sealed BYTEA NOT NULL,
    key_version INTEGER NOT NULL,
    bundle_at TIMESTAMP,
    ends_at TIMESTAMP,
    due_at TIMESTAMP
);
CREATE INDEX push_registrations_due_at ON push_registrations (due_at);
CREATE INDEX push_registrations_key_version ON push_registrations (key_version);
