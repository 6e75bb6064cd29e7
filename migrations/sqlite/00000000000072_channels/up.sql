-- Ways to reach a user who has no dashboard open. Addresses, keys and tokens are in `sealed`; `target_hash` makes one
-- target one channel of a user; `failing_since` is when the failures in a row began, NULL while there are none.
CREATE TABLE channels (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    target_hash TEXT NOT NULL,
    sealed BLOB NOT NULL,
    key_version INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    failing_since TIMESTAMP,
    accepted_at TIMESTAMP,
    created_at TIMESTAMP NOT NULL
);
CREATE UNIQUE INDEX channels_target ON channels (user_id, target_hash);
CREATE INDEX channels_key_version ON channels (key_version);
-- When which channels of a user are tried for alarms of a paired server, as JSON; no row: the default.
CREATE TABLE alarm_rules (
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    rules TEXT NOT NULL,
    PRIMARY KEY (server_id, user_id)
);
CREATE INDEX alarm_rules_user_id ON alarm_rules (user_id);
-- One user and one incident: the round of the rules, and when its next step is due; NULL: nothing more is sent.
CREATE TABLE notices (
    incident_id TEXT NOT NULL,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    opened_at TIMESTAMP NOT NULL,
    round INTEGER NOT NULL,
    round_at TIMESTAMP NOT NULL,
    due_at TIMESTAMP,
    PRIMARY KEY (incident_id, user_id)
);
CREATE INDEX notices_due_at ON notices (due_at);
CREATE INDEX notices_opened_at ON notices (opened_at);
CREATE INDEX notices_server_id ON notices (server_id);
CREATE INDEX notices_user_id ON notices (user_id);
-- One message by one channel; `due_at` is the next attempt, NULL once it has come to an end.
CREATE TABLE deliveries (
    id TEXT NOT NULL PRIMARY KEY,
    incident_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    channel_id TEXT NOT NULL REFERENCES channels (id) ON DELETE CASCADE,
    round INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    queued_at TIMESTAMP NOT NULL,
    due_at TIMESTAMP,
    status INTEGER,
    reason TEXT,
    ended_at TIMESTAMP,
    FOREIGN KEY (incident_id, user_id) REFERENCES notices (incident_id, user_id) ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE UNIQUE INDEX deliveries_of_round ON deliveries (incident_id, user_id, channel_id, round);
CREATE INDEX deliveries_due_at ON deliveries (due_at, queued_at);
CREATE INDEX deliveries_channel_id ON deliveries (channel_id);
-- The key by which push services of browsers know this service, sealed.
CREATE TABLE vapid_keys (
    id TEXT NOT NULL PRIMARY KEY,
    sealed BLOB NOT NULL,
    key_version INTEGER NOT NULL,
    created_at TIMESTAMP NOT NULL
);
