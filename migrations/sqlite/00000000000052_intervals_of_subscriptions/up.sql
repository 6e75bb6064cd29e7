-- How often a subscription is charged; NULL: its price is not configured. Tiers were sold by the month.
ALTER TABLE subscriptions ADD COLUMN billing_interval TEXT;
UPDATE subscriptions SET billing_interval = 'month' WHERE tier IS NOT NULL;
-- It was ended here because the provider did not know it, and goes on if the provider does after all.
ALTER TABLE subscriptions ADD COLUMN ended_unknown BOOLEAN NOT NULL DEFAULT FALSE;
-- Who paid a charge that an admin has to see.
UPDATE payment_events
SET user_hint = (SELECT user_id FROM payment_customers WHERE payment_customers.customer_id = payment_events.customer_id)
WHERE state = 'reported' AND user_hint IS NULL;
