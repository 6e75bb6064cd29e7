ALTER TABLE payment_events DROP COLUMN charge_id;
