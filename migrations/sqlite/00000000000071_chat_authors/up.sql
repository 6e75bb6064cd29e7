-- SteamID64 of who said a line; NULL: it was kept before this was known.
ALTER TABLE chat_lines ADD COLUMN author_id TEXT;
