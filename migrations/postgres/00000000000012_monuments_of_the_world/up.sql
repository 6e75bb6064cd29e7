-- JSON: [token, x, y] of each monument of the world as it was last seen; NULL: its map is not known.
ALTER TABLE paired_servers ADD COLUMN monuments TEXT;
