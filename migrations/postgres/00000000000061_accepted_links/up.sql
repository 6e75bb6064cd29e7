-- Counts changes of address, port, player and token of this row.
ALTER TABLE paired_servers ADD COLUMN credentials_version INTEGER NOT NULL DEFAULT 0;
-- The latest credentials that the game server has accepted; NULL: none.
ALTER TABLE paired_servers ADD COLUMN accepted_version INTEGER;
UPDATE paired_servers SET accepted_version = 0 WHERE link_alive_at >= updated_at;
