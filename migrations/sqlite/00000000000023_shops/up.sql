-- The shops of game servers, whoever has paired them. `game_server_id` is an address and port; `wipe` counts its worlds.
CREATE TABLE markets (
    game_server_id TEXT NOT NULL PRIMARY KEY,
    wipe INTEGER NOT NULL,
    -- JSON: what tells the world of this wipe from the next
    world TEXT,
    -- Whether the game server delivers its shops; NULL: not known yet
    available BOOLEAN,
    evidence TEXT,
    as_of TIMESTAMP
);

CREATE TABLE shops (
    game_server_id TEXT NOT NULL,
    wipe INTEGER NOT NULL,
    -- Its place
    vendor_id TEXT NOT NULL,
    name TEXT NOT NULL,
    grid TEXT NOT NULL,
    npc BOOLEAN,
    -- JSON: always read as a whole
    offers TEXT NOT NULL,
    first_seen_at TIMESTAMP NOT NULL,
    changed_at TIMESTAMP NOT NULL,
    gone_at TIMESTAMP,
    returns INTEGER NOT NULL,
    moved_from TEXT,
    PRIMARY KEY (game_server_id, wipe, vendor_id)
);
CREATE INDEX shops_gone_at ON shops (gone_at);

CREATE TABLE shop_history (
    id TEXT NOT NULL PRIMARY KEY,
    game_server_id TEXT NOT NULL,
    wipe INTEGER NOT NULL,
    vendor_id TEXT NOT NULL,
    at TIMESTAMP NOT NULL,
    news TEXT NOT NULL,
    item_id INTEGER NOT NULL,
    item_is_blueprint BOOLEAN NOT NULL,
    worn BOOLEAN NOT NULL,
    currency_id INTEGER NOT NULL,
    currency_is_blueprint BOOLEAN NOT NULL,
    cost INTEGER NOT NULL,
    quantity INTEGER NOT NULL,
    in_stock BIGINT NOT NULL
);
CREATE INDEX shop_history_all ON shop_history (game_server_id, wipe, at, id);
CREATE INDEX shop_history_of_vendor ON shop_history (game_server_id, wipe, vendor_id, at, id);
CREATE INDEX shop_history_of_item ON shop_history (game_server_id, wipe, item_id, at, id);
CREATE INDEX shop_history_at ON shop_history (at);

CREATE TABLE shop_watches (
    id TEXT NOT NULL PRIMARY KEY,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    vendor_id TEXT NOT NULL,
    item_id INTEGER NOT NULL,
    -- What the owner expects
    expected_price INTEGER,
    currency_id INTEGER,
    created_at TIMESTAMP NOT NULL,
    -- Rises with each edit, so that what was found for the one before is not stored
    version INTEGER NOT NULL,
    -- What the price is compared with, once the offer was seen
    baseline_currency_id INTEGER,
    baseline_cost INTEGER,
    baseline_quantity INTEGER,
    -- The latest finding
    state TEXT NOT NULL,
    cost INTEGER,
    quantity INTEGER,
    sold_out BOOLEAN NOT NULL,
    undercut_by TEXT,
    undercut_cost INTEGER,
    undercut_quantity INTEGER,
    as_of TIMESTAMP NOT NULL
);
CREATE INDEX shop_watches_server_id ON shop_watches (server_id, created_at, id);
