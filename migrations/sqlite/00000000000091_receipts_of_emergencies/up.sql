-- A message that its service repeats until `rings_until`, and the receipt by which it is ended before; null: none is.
ALTER TABLE deliveries ADD COLUMN receipt TEXT;
ALTER TABLE deliveries ADD COLUMN rings_until TIMESTAMP;
CREATE INDEX deliveries_rings_until ON deliveries (rings_until, id) WHERE rings_until IS NOT NULL;
