CREATE TABLE sign_in_attempts (
    state_hash TEXT NOT NULL PRIMARY KEY,
    return_target TEXT NOT NULL,
    expires_at TIMESTAMP NOT NULL
);
CREATE INDEX sign_in_attempts_expires_at ON sign_in_attempts (expires_at);

DROP INDEX push_credentials_staged_key_version;
DROP INDEX push_credentials_key_version;
DROP INDEX paired_servers_key_version;
DROP INDEX push_seen_newest;
DROP INDEX alarms_user_id;
DROP INDEX alarms_received_at;
DROP INDEX alarms_state;
DROP INDEX sessions_last_seen_at;
DROP INDEX timeline_ts;
