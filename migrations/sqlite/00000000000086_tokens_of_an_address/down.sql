-- The number of the key is found by trying.
SELECT 1;
