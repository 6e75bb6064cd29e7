ALTER TABLE subscriptions DROP COLUMN ended_unknown;
ALTER TABLE subscriptions DROP COLUMN billing_interval;
