CREATE TABLE tracked_players (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    tracker_name TEXT NOT NULL,
    name_key TEXT NOT NULL,
    tag TEXT,
    note TEXT,
    platform_id TEXT,
    author_id TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    online_since TIMESTAMP,
    last_seen_at TIMESTAMP,
    missed INTEGER NOT NULL
);
CREATE UNIQUE INDEX tracked_players_name ON tracked_players (server_id, name_key);

CREATE TABLE player_sessions (
    player_id TEXT NOT NULL REFERENCES tracked_players (id) ON DELETE CASCADE,
    began_at TIMESTAMP NOT NULL,
    ended_at TIMESTAMP NOT NULL,
    PRIMARY KEY (player_id, began_at)
);
CREATE INDEX player_sessions_ended_at ON player_sessions (ended_at);

CREATE TABLE server_matches (
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    matched TEXT,
    names_hidden BOOLEAN NOT NULL,
    checked_at TIMESTAMP NOT NULL,
    polled_at TIMESTAMP,
    PRIMARY KEY (address, port)
);
CREATE INDEX server_matches_checked_at ON server_matches (checked_at);

CREATE TABLE alias_answers (
    name_key TEXT NOT NULL,
    stats_server TEXT NOT NULL,
    answer TEXT NOT NULL,
    as_of TIMESTAMP NOT NULL,
    PRIMARY KEY (name_key, stats_server)
);
CREATE INDEX alias_answers_as_of ON alias_answers (as_of);

CREATE TABLE player_stats_spending (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    day TIMESTAMP NOT NULL,
    spent BIGINT NOT NULL
);
CREATE INDEX player_stats_spending_day ON player_stats_spending (day);
