ALTER TABLE subscriptions DROP COLUMN paid_tier;
