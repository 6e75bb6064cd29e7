DROP INDEX deliveries_rings_until;
ALTER TABLE deliveries DROP COLUMN rings_until;
ALTER TABLE deliveries DROP COLUMN receipt;
