-- When the link to the game server was last known to be up; NULL: never.
ALTER TABLE paired_servers ADD COLUMN link_alive_at TIMESTAMP;
