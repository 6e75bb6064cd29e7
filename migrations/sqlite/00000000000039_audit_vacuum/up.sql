-- SQLite needs no vacuum to count by an index.
SELECT 1;
