-- An older program knows no watch like these.
DELETE FROM shop_watches WHERE vendor_id IS NULL OR side <> 'sells' OR direction <> 'changes';
ALTER TABLE shop_watches DROP COLUMN found_vendor_id;
ALTER TABLE shop_watches DROP COLUMN direction;
ALTER TABLE shop_watches DROP COLUMN side;
ALTER TABLE shop_watches RENAME COLUMN vendor_id TO any_vendor_id;
ALTER TABLE shop_watches ADD COLUMN vendor_id TEXT NOT NULL DEFAULT '';
UPDATE shop_watches SET vendor_id = any_vendor_id;
ALTER TABLE shop_watches DROP COLUMN any_vendor_id;
