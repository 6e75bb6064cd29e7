-- The charge that an event is about: one that is disputed, or whose refund failed.
ALTER TABLE payment_events ADD COLUMN charge_id TEXT;
