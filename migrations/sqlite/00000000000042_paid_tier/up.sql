-- The tier of the last price that was paid, as far as it was seen. NULL: none was.
ALTER TABLE subscriptions ADD COLUMN paid_tier TEXT;
UPDATE subscriptions SET paid_tier = tier WHERE status NOT IN ('TRIALING', 'INCOMPLETE');
