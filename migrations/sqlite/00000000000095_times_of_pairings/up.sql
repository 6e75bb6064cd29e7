-- When the game sent the pairing that is stored, or its owner entered it; null: before this was known. A push that was sent
-- before comes too late.
ALTER TABLE paired_servers ADD COLUMN paired_at TIMESTAMP;
