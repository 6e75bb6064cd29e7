-- NULL: any shop.
ALTER TABLE shop_watches ALTER COLUMN vendor_id DROP NOT NULL;
-- Whether shops sell or buy the item: sells, buys.
ALTER TABLE shop_watches ADD COLUMN side TEXT NOT NULL DEFAULT 'sells';
-- What is expected of the price: atMost, atLeast, changes.
ALTER TABLE shop_watches ADD COLUMN direction TEXT NOT NULL DEFAULT 'changes';
-- The shop that the price is of. NULL: none has the offer.
ALTER TABLE shop_watches ADD COLUMN found_vendor_id TEXT;
