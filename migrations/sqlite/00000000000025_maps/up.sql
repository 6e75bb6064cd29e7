-- The map of each game server, whoever has paired it: that of its last known world.
CREATE TABLE maps (
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    -- JSON: what tells its world from the next
    world TEXT NOT NULL,
    -- JSON: [token, x, y] of each
    monuments TEXT NOT NULL,
    background TEXT,
    -- Of the picture; 0 without one
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    margin INTEGER NOT NULL,
    -- Digest of the picture; '' without one
    version TEXT NOT NULL,
    stored_at TIMESTAMP NOT NULL,
    PRIMARY KEY (address, port)
);
CREATE INDEX maps_stored_at ON maps (stored_at);

CREATE TABLE map_pictures (
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    -- Longest edge in pixels; 0: as the game server sent it
    size INTEGER NOT NULL,
    version TEXT NOT NULL,
    jpeg BLOB NOT NULL,
    PRIMARY KEY (address, port, size),
    FOREIGN KEY (address, port) REFERENCES maps (address, port) ON DELETE CASCADE
);

-- Whether anybody has paired a game server.
CREATE INDEX paired_servers_at ON paired_servers (address, port);
