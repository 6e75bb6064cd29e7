DROP INDEX idempotency_keys_device_id;
ALTER TABLE idempotency_keys DROP COLUMN device_id;
