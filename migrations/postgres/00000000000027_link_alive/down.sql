ALTER TABLE paired_servers DROP COLUMN link_alive_at;
