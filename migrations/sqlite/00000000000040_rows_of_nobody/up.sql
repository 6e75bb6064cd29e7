-- SQLite has one writer: its foreign keys hold.
SELECT 1;
