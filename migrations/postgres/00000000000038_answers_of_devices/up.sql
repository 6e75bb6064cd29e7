-- The helper device whose token the answer shows: it goes with it, however that ends. NULL: it shows none.
ALTER TABLE idempotency_keys ADD COLUMN device_id TEXT REFERENCES helper_devices (id) ON DELETE CASCADE;
CREATE INDEX idempotency_keys_device_id ON idempotency_keys (device_id);
-- Of which device these were, nobody knows any more.
DELETE FROM idempotency_keys WHERE caller LIKE 'code %';
