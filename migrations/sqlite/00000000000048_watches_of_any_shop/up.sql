-- NULL: any shop. SQLite takes a NOT NULL away only with the column.
ALTER TABLE shop_watches RENAME COLUMN vendor_id TO one_vendor_id;
ALTER TABLE shop_watches ADD COLUMN vendor_id TEXT;
UPDATE shop_watches SET vendor_id = one_vendor_id;
ALTER TABLE shop_watches DROP COLUMN one_vendor_id;
-- Whether shops sell or buy the item: sells, buys.
ALTER TABLE shop_watches ADD COLUMN side TEXT NOT NULL DEFAULT 'sells';
-- What is expected of the price: atMost, atLeast, changes.
ALTER TABLE shop_watches ADD COLUMN direction TEXT NOT NULL DEFAULT 'changes';
-- The shop that the price is of. NULL: none has the offer.
ALTER TABLE shop_watches ADD COLUMN found_vendor_id TEXT;
