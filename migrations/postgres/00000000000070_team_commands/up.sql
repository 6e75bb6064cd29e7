-- Commands in the team's chat: the settings of a paired server, as JSON.
CREATE TABLE team_chat_settings (
    server_id TEXT NOT NULL PRIMARY KEY REFERENCES paired_servers (id) ON DELETE CASCADE,
    settings TEXT NOT NULL
);
-- Devices that are switched as one; `devices` is an array of device ids as JSON.
CREATE TABLE device_groups (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    command TEXT,
    devices TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL
);
CREATE INDEX device_groups_server_id ON device_groups (server_id);
-- Timers that players set in chat.
CREATE TABLE team_timers (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    ends_at TIMESTAMP NOT NULL
);
CREATE INDEX team_timers_server_id ON team_timers (server_id);
-- Switches that turn back: the value that they have from then on.
CREATE TABLE switch_backs (
    server_id TEXT NOT NULL,
    device_id TEXT NOT NULL,
    value BOOLEAN NOT NULL,
    due_at TIMESTAMP NOT NULL,
    PRIMARY KEY (server_id, device_id),
    FOREIGN KEY (server_id, device_id) REFERENCES smart_devices (server_id, device_id) ON DELETE CASCADE
);
-- Speeds of a game server's day and night, in hours of the game for each real second; NULL: not learned yet.
CREATE TABLE day_speeds (
    game_server TEXT NOT NULL PRIMARY KEY,
    day DOUBLE PRECISION,
    night DOUBLE PRECISION
);
