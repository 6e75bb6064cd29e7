-- What members are searched by: the platform id, and the name from the start of each of its words, in lower case.
CREATE TABLE user_search (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, key)
);
CREATE INDEX user_search_key ON user_search (key, user_id);
-- The other words come at each user's next sign-in.
INSERT INTO user_search (user_id, key) SELECT id, platform_id FROM users UNION SELECT id, lower(display_name) FROM users;

-- Who was there on a day, until it is counted.
CREATE TABLE active_days (
    day TIMESTAMP NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (day, user_id)
);

-- What was counted on a day: a closed one, or what users did.
CREATE TABLE daily_counts (
    day TIMESTAMP NOT NULL,
    kind TEXT NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (day, kind)
);

CREATE INDEX users_last_seen_at ON users (last_seen_at);
CREATE INDEX users_created_at ON users (created_at);
CREATE INDEX subscriptions_status ON subscriptions (status);
CREATE INDEX paired_servers_created_at ON paired_servers (created_at);
CREATE INDEX incidents_of_day ON incidents (drill, first_at);
CREATE INDEX timeline_kinds ON timeline (ts, kind);
