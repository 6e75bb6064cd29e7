-- An older program knows no watch like these.
DELETE FROM shop_watches WHERE vendor_id IS NULL OR side <> 'sells' OR direction <> 'changes';
ALTER TABLE shop_watches DROP COLUMN found_vendor_id;
ALTER TABLE shop_watches DROP COLUMN direction;
ALTER TABLE shop_watches DROP COLUMN side;
ALTER TABLE shop_watches ALTER COLUMN vendor_id SET NOT NULL;
