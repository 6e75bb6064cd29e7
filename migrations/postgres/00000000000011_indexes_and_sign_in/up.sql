-- What each minute's purge looks for.
CREATE INDEX timeline_ts ON timeline (ts);
CREATE INDEX sessions_last_seen_at ON sessions (last_seen_at);
-- What each scrape counts.
CREATE INDEX alarms_state ON alarms (state);
CREATE INDEX alarms_received_at ON alarms (finished_at, received_at);
-- What is deleted with a user.
CREATE INDEX alarms_user_id ON alarms (user_id);
-- The newest messages of a user, at every push.
CREATE INDEX push_seen_newest ON push_seen (user_id, received_at, persistent_id);
-- What older keys sealed.
CREATE INDEX paired_servers_key_version ON paired_servers (key_version);
CREATE INDEX push_credentials_key_version ON push_credentials (key_version);
CREATE INDEX push_credentials_staged_key_version ON push_credentials (staged_key_version);

-- The browser keeps its attempt itself.
DROP TABLE sign_in_attempts;
